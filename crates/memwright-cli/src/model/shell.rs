//! Quotes commands for a shell.

use std::ffi::{OsStr, OsString};

/// Returns a command as one line, quoted for a shell.
pub fn shell_line(program: &OsStr, arguments: &[OsString]) -> String {
    let mut line = shell_word(program);
    for argument in arguments {
        line.push(' ');
        line.push_str(&shell_word(argument));
    }
    line
}

fn shell_word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more() {
        let arguments: Vec<OsString> = ["-m", "512M", "a b", "it's", "", "$HOME"]
            .map(OsString::from)
            .to_vec();
        let line = shell_line(OsStr::new("qemu"), &arguments);
        assert_eq!(line, r"qemu -m 512M 'a b' 'it'\''s' '' '$HOME'");
    }
}
