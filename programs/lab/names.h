/* Reports the names that the program looks up in vain.
 *
 * The program runs under a seccomp filter that stops each system call with a path until the first process, which holds the
 * filter's listener, has looked at the path. The program may use ptrace, fork and execute files as without the filter. If
 * nothing is at the path, the first process sends a frame 'm' with the path, made absolute: once for each, by a table of
 * hashes. Calls of another architecture are not stopped.
 */
#include <poll.h>
#include <stddef.h>
#include <sys/uio.h>

/* musl has no headers of the kernel: linux/seccomp.h, linux/filter.h, linux/bpf_common.h and linux/audit.h. */
struct call_data {
	int32_t number;
	uint32_t architecture;
	uint64_t instruction, arguments[6];
};
struct stopped_call {
	uint64_t id;
	uint32_t process, flags;
	struct call_data data;
};
struct call_answer {
	uint64_t id;
	int64_t value;
	int32_t error;
	uint32_t flags;
};
struct filter_step {
	uint16_t code;
	uint8_t if_true, if_false;
	uint32_t value;
};
struct filter {
	uint16_t length;
	struct filter_step *steps;
};
enum { SET_MODE_FILTER = 1, NEW_LISTENER = 8, CONTINUE = 1 };
enum { LOAD_WORD = 0x20, JUMP_IF_EQUAL = 0x15, RETURN = 0x06 };
#define RETURN_ALLOW 0x7fff0000U
#define RETURN_NOTIFY 0x7fc00000U
#define ARCHITECTURE_X86_64 0xc000003eU
#define RECEIVE_CALL _IOWR('!', 0, struct stopped_call)
#define SEND_ANSWER _IOWR('!', 1, struct call_answer)

enum { NAMES_SEEN = 1 << 16 };

/* The index of the argument with the path, and of the argument with the folder to which it is relative; -1
 * for the working directory. */
static const struct {
	int call, folder, path;
} calls_with_path[] = {
	{ SYS_open, -1, 0 },	  { SYS_stat, -1, 0 },	   { SYS_lstat, -1, 0 },     { SYS_access, -1, 0 },
	{ SYS_readlink, -1, 0 },  { SYS_execve, -1, 0 },   { SYS_chdir, -1, 0 },     { SYS_openat, 0, 1 },
	{ SYS_newfstatat, 0, 1 }, { SYS_statx, 0, 1 },	   { SYS_faccessat, 0, 1 },  { SYS_faccessat2, 0, 1 },
	{ SYS_readlinkat, 0, 1 }, { SYS_execveat, 0, 1 },  { SYS_openat2, 0, 1 },
};
enum { CALLS_WITH_PATH = sizeof calls_with_path / sizeof calls_with_path[0] };

/* Puts this process under the filter. Returns the listener, or -1. */
static int install_listener(void)
{
	struct filter_step steps[CALLS_WITH_PATH + 5];
	struct filter filter = { .length = sizeof steps / sizeof steps[0], .steps = steps };
	struct filter_step *next = steps;

	*next++ = (struct filter_step){ LOAD_WORD, 0, 0, offsetof(struct call_data, architecture) };
	*next++ = (struct filter_step){ JUMP_IF_EQUAL, 0, CALLS_WITH_PATH + 1, ARCHITECTURE_X86_64 };
	*next++ = (struct filter_step){ LOAD_WORD, 0, 0, offsetof(struct call_data, number) };
	for (int i = 0; i < CALLS_WITH_PATH; i++)
		*next++ = (struct filter_step){ JUMP_IF_EQUAL, CALLS_WITH_PATH - i, 0, calls_with_path[i].call };
	*next++ = (struct filter_step){ RETURN, 0, 0, RETURN_ALLOW };
	*next++ = (struct filter_step){ RETURN, 0, 0, RETURN_NOTIFY };
	return syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, &filter);
}

/* Sends a descriptor, or receives one if `file` is -1. Returns it, or -1. */
static int pass_file(int socket, int file)
{
	char byte = 0;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof control };

	if (file >= 0) {
		memcpy(CMSG_DATA(&control.header), &file, sizeof file);
		return sendmsg(socket, &message, 0) == 1 ? file : -1;
	}
	control.header.cmsg_len = 0;
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && control.header.cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&file, CMSG_DATA(&control.header), sizeof file);
	return file;
}

/* Reads a string of another process. Returns its length, or 0 if it cannot be read. */
static size_t read_path(pid_t process, uint64_t from, char *path)
{
	size_t length = 0;

	while (length < NAME) {
		/* A part never crosses a page: the next page may be unmapped. */
		size_t part = PAGE - (from + length) % PAGE;
		if (part > NAME - length)
			part = NAME - length;
		struct iovec here = { path + length, part }, there = { (void *)(uintptr_t)(from + length), part };
		if (process_vm_readv(process, &here, 1, &there, 1, 0) != (ssize_t)part)
			return 0;
		char *end = memchr(path + length, 0, part);
		if (end)
			return end - path;
		length += part;
	}
	return 0;
}

/* Writes the absolute form of a path that a system call was given; the result may contain `..` and symbolic links. */
static int make_absolute(const struct stopped_call *call, int folder, const char *path, char *absolute)
{
	char link[64];

	if (path[0] == '/')
		return snprintf(absolute, 2 * NAME, "%s", path) > 0;
	int number = folder < 0 ? AT_FDCWD : (int)call->data.arguments[folder];
	if (number == AT_FDCWD)
		snprintf(link, sizeof link, "/proc/%d/cwd", call->process);
	else
		snprintf(link, sizeof link, "/proc/%d/fd/%d", call->process, number);
	ssize_t length = readlink(link, absolute, NAME);
	if (length <= 0 || absolute[0] != '/')
		return 0;
	return snprintf(absolute + length, 2 * NAME - length, "/%s", path) > 0;
}

/* Returns whether a name is new, and adds it to the table. If the table is full, every name counts as new. */
static int is_new_name(const char *name)
{
	static uint64_t seen[NAMES_SEEN];
	static int count;
	uint64_t hash = 0xcbf29ce484222325;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
	hash |= !hash;
	size_t at = hash % NAMES_SEEN;
	for (; seen[at] && seen[at] != hash; at = (at + 1) % NAMES_SEEN)
		;
	if (seen[at])
		return 0;
	if (count < NAMES_SEEN / 2) {
		seen[at] = hash;
		count++;
	}
	return 1;
}

/* Sends the path of a system call if nothing is there. */
static void look_at(const struct stopped_call *call)
{
	static char path[NAME], absolute[2 * NAME];
	struct stat found;
	int i = 0;

	while (i < CALLS_WITH_PATH && calls_with_path[i].call != call->data.number)
		i++;
	if (i == CALLS_WITH_PATH || !read_path(call->process, call->data.arguments[calls_with_path[i].path], path) ||
	    !make_absolute(call, calls_with_path[i].folder, path, absolute))
		return;
	if (stat(absolute, &found) == 0 || (errno != ENOENT && errno != ENOTDIR))
		return;
	if (is_new_name(absolute))
		send_frame('m', absolute, strlen(absolute));
}

/* Serves the listener until the program has ended. */
static void watch_names(int listener, pid_t child)
{
	static struct stopped_call call;
	struct call_answer answer = { .flags = CONTINUE };
	struct pollfd files[2] = { { .fd = listener, .events = POLLIN },
				   { .fd = syscall(SYS_pidfd_open, child, 0), .events = POLLIN } };

	while (poll(files, 2, -1) > 0 && !files[1].revents) {
		memset(&call, 0, sizeof call);
		if (ioctl(listener, RECEIVE_CALL, &call) != 0) {
			/* The caller was killed meanwhile, or no process is left under the filter. */
			if (files[0].revents & POLLHUP)
				break;
			continue;
		}
		look_at(&call);
		answer.id = call.id;
		ioctl(listener, SEND_ANSWER, &answer);
	}
	close(files[1].fd);
}
