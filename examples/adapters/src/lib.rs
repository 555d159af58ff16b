//! Implementations of the paging interfaces of other crates on Memwright, for kernels that use these interfaces already.
//!
//! | module | crate | interface |
//! |---|---|---|
//! | [`set`] | `memory_set` 0.4 | `MappingBackend`: a `MemorySet` whose areas an [`AddressSpace`] maps |
//! | [`mapper`] | `x86_64` 0.15 | `Mapper` and `Translate` on a [`Table`] |
//! | [`managed`] | `page_table_multiarch` 0.6 | the methods of `PageTable64` and of its cursor, on a [`Table`] |
//! | [`kernel_table`] | `page_table_multiarch` 0.6 | `PagingHandler` and `PagingMetaData` on [`Frames`]: a table of the kernel |
//!
//! `docs/embedding.md` lists what each interface cannot express. If a function of this crate cannot honour an argument,
//! it returns an error of the interface, or panics where the interface has no such error. No argument is silently
//! ignored.
//!
//! [`AddressSpace`]: memwright::AddressSpace
//! [`Table`]: memwright_table::Table
//! [`Frames`]: memwright_table::Frames
#![no_std]
#![deny(missing_docs)]

extern crate alloc;

mod flags;
pub mod kernel_table;
mod leaf;
pub mod managed;
pub mod mapper;
pub mod set;

pub use flags::Unsupported;
