//! Frames, entries, tables and the gather.
#![no_std]
