/* Unpacks the archive of the program and its files into the guest's file system.
 *
 * The archive (cpio, "newc") is a file of QEMU's firmware configuration device. It is read once the machine runs with the
 * program, so that the kernel's boot does not depend on it. The device copies it into memory by physical address: byte by
 * byte, through a port, 24 MB would take seconds. Files get the owner, mode and times that the kernel's own unpacker
 * (init/initramfs.c) would give them.
 */
#include <endian.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* docs/specs/fw_cfg.rst of QEMU. */
enum { SELECTOR_PORT = 0x510, DATA_PORT = 0x511, DMA_HIGH_PORT = 0x514, DMA_LOW_PORT = 0x518, DIRECTORY = 0x19 };
enum { DMA_ERROR = 1, DMA_READ = 2, DMA_SELECT = 8 };
#define PROGRAM_FILE "opt/memwright/program"
/* The item with the same archive if the program must report the names that it does not find. */
#define WATCHED_PROGRAM_FILE "opt/memwright/watched-program"

struct transfer {
	uint32_t control, length;
	uint64_t address;
};

struct directory_entry {
	uint32_t size;
	uint16_t key, reserved;
	char name[56];
};

enum { PIECE_PAGES = 64, PIECE = PIECE_PAGES * PAGE, HEADER = 110, NAME = 4096 };

/* Pages that keep their place in physical memory, and the part of the archive that is in them. */
static struct {
	unsigned char *bytes;
	volatile struct transfer *transfer;
	uint64_t pages[PIECE_PAGES + 1];
	/* A pipe that holds references to the pages: a page with such a reference is not migrated. */
	int pins[2];
	int has_addresses;
	/* The read position in the pages, how much they hold, and what the device still has. */
	size_t at, held, left;
	int is_watched;
} source;

static int find_addresses(void)
{
	struct iovec all = { source.bytes, PIECE + PAGE };
	int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	long size = sizeof source.pages;
	if (file < 0)
		return 0;
	int pinned = pipe2(source.pins, O_CLOEXEC) == 0 && fcntl(source.pins[1], F_SETPIPE_SZ, 2 * PIECE) > 0 &&
		     vmsplice(source.pins[1], &all, 1, 0) == PIECE + PAGE;
	int known = pinned && pread(file, source.pages, size, (uintptr_t)source.bytes / PAGE * 8) == size;
	close(file);
	for (int i = 0; known && i <= PIECE_PAGES; i++) {
		/* Bit 63: present; bits 0 to 54: the frame. */
		uint64_t frame = source.pages[i] & ((1ULL << 55) - 1);
		known = source.pages[i] >> 63 && frame;
		source.pages[i] = frame * PAGE;
	}
	return known;
}

/* Transfers bytes to `to`, from where the last transfer ended, or from the start of the file that `select` names. */
static int transfer_page(uint64_t to, uint32_t length, uint32_t select)
{
	source.transfer->control = htobe32(DMA_READ | select);
	source.transfer->length = htobe32(length);
	source.transfer->address = htobe64(to);
	outl(htobe32(source.pages[PIECE_PAGES] >> 32), DMA_HIGH_PORT);
	outl(htobe32(source.pages[PIECE_PAGES]), DMA_LOW_PORT);
	return source.transfer->control == 0;
}

/* Fills the pages; `key` selects another file first, if it is not 0. */
static int fill(size_t length, int key)
{
	if (!source.has_addresses) {
		if (key)
			outw(key, SELECTOR_PORT);
		insb(DATA_PORT, source.bytes, length);
		return 1;
	}
	for (size_t at = 0; at < length; at += PAGE) {
		uint32_t part = length - at < PAGE ? length - at : PAGE;
		uint32_t select = key && at == 0 ? (uint32_t)key << 16 | DMA_SELECT : 0;
		if (!transfer_page(source.pages[at / PAGE], part, select))
			return 0;
	}
	return 1;
}

/* Finds the file and selects it. */
static int open_source(void)
{
	int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	void *pages = mmap(NULL, PIECE + PAGE, protection, flags, -1, 0);
	if (pages == MAP_FAILED)
		return 0;
	source.bytes = pages;
	source.transfer = (void *)(source.bytes + PIECE);
	source.has_addresses = find_addresses();
	struct directory_entry *entry = (void *)(source.bytes + sizeof(uint32_t));
	if (!fill(PIECE, DIRECTORY))
		return 0;
	uint32_t count = be32toh(*(uint32_t *)source.bytes);
	for (uint32_t i = 0; i < count && (unsigned char *)(entry + 1) <= source.bytes + PIECE; i++, entry++) {
		source.is_watched = strcmp(entry->name, WATCHED_PROGRAM_FILE) == 0;
		if (!source.is_watched && strcmp(entry->name, PROGRAM_FILE) != 0)
			continue;
		int key = be16toh(entry->key);
		source.left = be32toh(entry->size);
		source.held = source.left < PIECE ? source.left : PIECE;
		source.left -= source.held;
		return fill(source.held, key);
	}
	return 0;
}

static void close_source(void)
{
	close(source.pins[0]);
	close(source.pins[1]);
	munmap(source.bytes, PIECE + PAGE);
}

/* Returns the number of the next bytes of the archive, at most `length`, and where they are. */
static size_t next_bytes(unsigned char **bytes, size_t length)
{
	if (source.at == source.held && source.left) {
		source.held = source.left < PIECE ? source.left : PIECE;
		source.left -= source.held;
		source.at = 0;
		if (!fill(source.held, 0))
			source.held = source.left = 0;
	}
	if (length > source.held - source.at)
		length = source.held - source.at;
	*bytes = source.bytes + source.at;
	source.at += length;
	return length;
}

static int take(void *to, size_t length)
{
	while (length) {
		unsigned char *bytes;
		size_t part = next_bytes(&bytes, length);
		if (!part)
			return 0;
		memcpy(to, bytes, part);
		to = (char *)to + part;
		length -= part;
	}
	return 1;
}

/* Skips the padding to a multiple of four bytes. */
static int skip_padding(size_t length)
{
	char padding[4];
	return take(padding, -length & 3);
}

static int write_body(int file, size_t length)
{
	while (length) {
		unsigned char *bytes;
		size_t part = next_bytes(&bytes, length);
		if (!part || write(file, bytes, part) != (long)part)
			return 0;
		length -= part;
	}
	return 1;
}

/* A folder whose time is set after its contents have been created. */
struct folder_time {
	struct folder_time *next;
	struct timespec times[2];
	char name[];
};

struct entry {
	uint32_t mode, owner, group, size;
	struct timespec times[2];
	char name[NAME];
};

static int unpack_file(const struct entry *entry)
{
	int file = open(entry->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, entry->mode & 07777);
	if (file < 0)
		return 0;
	int done = fchown(file, entry->owner, entry->group) == 0 && fchmod(file, entry->mode & 07777) == 0 &&
		   ftruncate(file, entry->size) == 0 && write_body(file, entry->size) && futimens(file, entry->times) == 0;
	close(file);
	return done && skip_padding(entry->size);
}

static int unpack_link(const struct entry *entry)
{
	char target[NAME];
	if (entry->size >= sizeof target || !take(target, entry->size) || !skip_padding(entry->size))
		return 0;
	target[entry->size] = 0;
	unlink(entry->name);
	return symlink(target, entry->name) == 0 && lchown(entry->name, entry->owner, entry->group) == 0 &&
	       utimensat(AT_FDCWD, entry->name, entry->times, AT_SYMLINK_NOFOLLOW) == 0;
}

static int unpack_folder(const struct entry *entry, struct folder_time **folders)
{
	struct folder_time *folder = malloc(sizeof *folder + strlen(entry->name) + 1);
	if (!folder || (mkdir(entry->name, entry->mode & 07777) != 0 && errno != EEXIST))
		return 0;
	memcpy(folder->times, entry->times, sizeof folder->times);
	strcpy(folder->name, entry->name);
	folder->next = *folders;
	*folders = folder;
	/* The kernel's own file systems may refuse. */
	if (chown(entry->name, entry->owner, entry->group) == 0)
		chmod(entry->name, entry->mode & 07777);
	return 1;
}

static int read_header(struct entry *entry)
{
	enum { MODE = 1, OWNER, GROUP, TIME = 5, SIZE, NAME_LENGTH = 11, FIELDS = 13 };
	char text[HEADER + 1] = "", field[9] = "";
	uint32_t fields[FIELDS];
	if (!take(text, HEADER) || memcmp(text, "070701", 6) != 0)
		return 0;
	for (int i = 0; i < FIELDS; i++) {
		memcpy(field, text + 6 + 8 * i, 8);
		fields[i] = strtoul(field, NULL, 16);
	}
	entry->mode = fields[MODE];
	entry->owner = fields[OWNER];
	entry->group = fields[GROUP];
	entry->size = fields[SIZE];
	entry->times[0].tv_sec = entry->times[1].tv_sec = fields[TIME];
	uint32_t length = fields[NAME_LENGTH];
	return length > 0 && length <= NAME && take(entry->name, length) && entry->name[length - 1] == 0 &&
	       skip_padding(HEADER + length);
}

static int unpack_entry(const struct entry *entry, struct folder_time **folders)
{
	switch (entry->mode & S_IFMT) {
	case S_IFDIR:
		return unpack_folder(entry, folders);
	case S_IFREG:
		return unpack_file(entry);
	case S_IFLNK:
		return unpack_link(entry);
	default:
		return 0;
	}
}

/* Unpacks the archive relative to the current folder. Returns 0 where it is damaged, or the file system is full. */
static int unpack(void)
{
	static struct entry entry;
	struct folder_time *folders = NULL;
	mode_t mask = umask(0);
	int going = open_source();
	while (going && (going = read_header(&entry)) && strcmp(entry.name, "TRAILER!!!") != 0)
		going = unpack_entry(&entry, &folders);
	close_source();
	while (folders) {
		struct folder_time *folder = folders;
		utimensat(AT_FDCWD, folder->name, folder->times, 0);
		folders = folder->next;
		free(folder);
	}
	umask(mask);
	return going;
}
