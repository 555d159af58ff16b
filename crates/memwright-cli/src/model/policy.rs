//! The policies that `--policy` selects.

use memwright::{Policy, PolicyError};

use crate::model::machine::Apic;

/// Checks a complete list of policies, separated by commas.
///
/// # Errors
/// The reason why an entry is invalid.
pub fn parse_policies(text: &str) -> Result<String, String> {
    text.split(',')
        .map(parse_policy)
        .collect::<Result<Vec<_>, _>>()
        .map(|policies| policies.join(","))
}

/// Checks one `K=V` of a policy list.
///
/// # Errors
/// The reason why the entry is invalid.
pub fn parse_policy(text: &str) -> Result<String, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("expected K=V, for example aslr=7".to_owned());
    };
    if key == "aslr" {
        return match value.parse::<u64>() {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err("expected aslr=SEED, a number".to_owned()),
        };
    }
    if key == Apic::KEY {
        return match Apic::from_value(value) {
            Some(_) => Ok(text.to_owned()),
            None => Err("expected xapic or x2apic".to_owned()),
        };
    }
    match Policy::default().set(key, value) {
        Ok(()) => Ok(text.to_owned()),
        Err(PolicyError::UnknownKey) => {
            let keys: Vec<&str> = Policy::KEYS.iter().map(|(key, _)| *key).collect();
            Err(format!(
                "no such policy; there are aslr, {}, {}",
                Apic::KEY,
                keys.join(", ")
            ))
        }
        Err(PolicyError::UnknownValue { values, .. }) => Err(format!("expected {values}")),
    }
}
