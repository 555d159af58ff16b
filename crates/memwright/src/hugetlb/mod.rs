//! hugetlb: areas and files of huge pages from a reserved pool (Linux 7.2 `mm/hugetlb.c`).

pub(crate) mod area;
pub(crate) mod object;
