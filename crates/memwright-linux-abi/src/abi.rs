//! Values that programs and the kernel exchange as bytes in user memory.

/// A value with a fixed layout in user memory, without padding that could leak kernel bytes.
pub trait Plain: Sized {
    /// Size in bytes in user memory.
    const SIZE: usize;
    /// Reads the value from exactly [`SIZE`](Self::SIZE) bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// Writes the value to exactly [`SIZE`](Self::SIZE) bytes.
    fn to_bytes(&self, bytes: &mut [u8]);
}

macro_rules! plain_integers {
    ($($integer:ty)*) => {
        $(impl Plain for $integer {
            const SIZE: usize = size_of::<$integer>();
            fn from_bytes(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$integer>()];
                value.copy_from_slice(bytes);
                Self::from_le_bytes(value)
            }
            fn to_bytes(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

plain_integers!(u8 i8 u16 i16 u32 i32 u64 i64);

impl<T: Plain + Copy + Default, const N: usize> Plain for [T; N] {
    const SIZE: usize = T::SIZE * N;
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut values = [T::default(); N];
        for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
            *value = T::from_bytes(bytes);
        }
        values
    }
    fn to_bytes(&self, bytes: &mut [u8]) {
        for (value, bytes) in self.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.to_bytes(bytes);
        }
    }
}

/// The maximum size in bytes of a [`Plain`] value. Values are copied through a buffer of this size on the kernel stack.
pub const PLAIN_MAX: usize = 160;

/// Declares a structure of the system-call interface. In user memory the fields are in the declared order, without
/// gaps. Padding must therefore be declared as a field.
#[macro_export]
macro_rules! abi_struct {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }
        impl $crate::abi::Plain for $name {
            const SIZE: usize = 0 $(+ <$kind as $crate::abi::Plain>::SIZE)*;
            fn from_bytes(bytes: &[u8]) -> Self {
                let mut rest = bytes;
                $(
                    let (field, after) = rest.split_at(<$kind as $crate::abi::Plain>::SIZE);
                    let $field = <$kind as $crate::abi::Plain>::from_bytes(field);
                    rest = after;
                )*
                debug_assert!(rest.is_empty());
                Self { $($field,)* }
            }
            fn to_bytes(&self, bytes: &mut [u8]) {
                let mut rest = bytes;
                $(
                    let (field, after) = rest.split_at_mut(<$kind as $crate::abi::Plain>::SIZE);
                    <$kind as $crate::abi::Plain>::to_bytes(&self.$field, field);
                    rest = after;
                )*
                debug_assert!(rest.is_empty());
            }
        }
    };
}

abi_struct! {
    /// `struct iovec` of `linux/uio.h`.
    pub struct IoVector {
        /// First address.
        pub base: u64,
        /// Length in bytes.
        pub length: u64,
    }
}

abi_struct! {
    /// `struct __kernel_timespec` of `linux/time_types.h`.
    pub struct Timespec {
        /// Seconds.
        pub seconds: i64,
        /// Nanoseconds, 0 to 999,999,999.
        pub nanoseconds: i64,
    }
}

abi_struct! {
    /// `struct timeval` of `linux/time.h`.
    pub struct Timeval {
        /// Seconds.
        pub seconds: i64,
        /// Microseconds, 0 to 999,999.
        pub microseconds: i64,
    }
}

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;

impl Timespec {
    /// Converts from nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / SECOND) as i64,
            nanoseconds: (nanoseconds % SECOND) as i64,
        }
    }

    /// Returns the value in nanoseconds, saturating. Returns `None` if the value is negative or not normalised.
    pub const fn to_nanoseconds(self) -> Option<u64> {
        if self.seconds < 0 || self.nanoseconds < 0 || self.nanoseconds >= SECOND as i64 {
            return None;
        }
        Some(
            (self.seconds as u64)
                .saturating_mul(SECOND)
                .saturating_add(self.nanoseconds as u64),
        )
    }
}

impl Timeval {
    /// Converts from nanoseconds, rounding down to microseconds.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self {
            seconds: (nanoseconds / SECOND) as i64,
            microseconds: (nanoseconds % SECOND / 1000) as i64,
        }
    }

    /// Returns the value in nanoseconds, saturating. Returns `None` if the value is negative or not normalised.
    pub const fn to_nanoseconds(self) -> Option<u64> {
        if self.microseconds < 0 || self.microseconds >= 1_000_000 {
            return None;
        }
        Timespec {
            seconds: self.seconds,
            nanoseconds: self.microseconds * 1000,
        }
        .to_nanoseconds()
    }
}

#[cfg(test)]
mod tests {
    use super::{Plain, Timespec, Timeval};

    #[test]
    fn structures_round_trip_through_bytes() {
        let time = Timespec {
            seconds: 5,
            nanoseconds: -1,
        };
        let mut bytes = [0xff; 16];
        time.to_bytes(&mut bytes);
        assert_eq!(Timespec::from_bytes(&bytes), time);
        assert_eq!(Timespec::SIZE, 16);
        assert_eq!(<[u16; 3]>::from_bytes(&[1, 0, 2, 0, 3, 1]), [1, 2, 0x103]);
    }

    #[test]
    fn times_convert_or_are_refused() {
        assert_eq!(
            Timespec::from_nanoseconds(2_500_000_000).to_nanoseconds(),
            Some(2_500_000_000)
        );
        assert_eq!(
            Timespec {
                seconds: 0,
                nanoseconds: 1_000_000_000
            }
            .to_nanoseconds(),
            None
        );
        assert_eq!(
            Timespec {
                seconds: -1,
                nanoseconds: 0
            }
            .to_nanoseconds(),
            None
        );
        assert_eq!(
            Timeval {
                seconds: 1,
                microseconds: 3
            }
            .to_nanoseconds(),
            Some(1_000_003_000)
        );
        assert_eq!(
            Timespec {
                seconds: i64::MAX,
                nanoseconds: 0
            }
            .to_nanoseconds(),
            Some(u64::MAX)
        );
    }
}
