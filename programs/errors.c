/* Which error does a memory call return if there is one reason to fail, and which if there are two?
 *
 * For each call the program has an invocation that succeeds, and reasons to fail: changes of the arguments or
 * of the process's state. It makes every call with each reason, and with each pair of reasons that can be
 * combined, each time in a separate child, and prints one line for each. It does not judge the results;
 * errors.linux has the results of Linux 7.3.
 *
 * Needs root, /dev/zram0 as swap, and a machine without other users, because some states change settings of the
 * system.
 */
#include "errors/advice.h"
#include "errors/files.h"
#include "errors/huge.h"
#include "errors/mapping.h"
#include "errors/nodes.h"
#include "errors/others.h"
#include "errors/prepare.h"
#include "errors/segments.h"
#include "errors/tracking.h"

#define TABLE(calls) { calls, sizeof calls / sizeof *calls }
static const struct {
	const struct call *calls;
	size_t count;
} tables[] = {
	TABLE(mapping_calls), TABLE(advice_calls), TABLE(tracking_calls), TABLE(segments_calls),
	TABLE(files_calls), TABLE(nodes_calls), TABLE(others_calls), TABLE(huge_calls),
};
enum { TABLES = sizeof tables / sizeof *tables, EDITS = 4, REASONS = 24 };

static const struct {
	int number;
	const char *name;
} errors[] = {
#define E(name) { name, #name }
	E(EPERM), E(ENOENT), E(ESRCH), E(EINTR), E(EIO), E(ENXIO), E(E2BIG), E(EBADF), E(EAGAIN), E(ENOMEM), E(EACCES),
	E(EFAULT), E(EBUSY), E(EEXIST), E(ENODEV), E(ENOTDIR), E(EISDIR), E(EINVAL), E(ENFILE), E(EMFILE), E(ENOTTY),
	E(EFBIG), E(ENOSPC), E(ESPIPE), E(ERANGE), E(ENOSYS), E(EOVERFLOW), E(EOPNOTSUPP), E(ETXTBSY), E(ENAMETOOLONG),
	E(ELOOP), E(EROFS), E(EIDRM), E(EHWPOISON),
};

static const char *name_of(int number)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].number == number)
			return errors[i].name;
	static char text[16];
	snprintf(text, sizeof text, "%d", number);
	return number ? text : "0";
}

static void edit(unsigned long *words, const struct reason *reason, unsigned long *state)
{
	for (int i = 0; i < EDITS; i++) {
		const struct edit *edit = &reason->edits[i];
		if (edit->kind == '=')
			words[edit->word] = edit->value;
		else if (edit->kind == '|')
			words[edit->word] |= edit->value;
		else if (edit->kind == '&')
			words[edit->word] &= ~edit->value;
		else if (edit->kind == '!')
			*state |= edit->value;
	}
}

/* Returns whether two states are equal, or are limits of the same resource. */
static int same_state(unsigned long a, unsigned long b)
{
	const unsigned long locking = NO_LOCKING | LITTLE_LOCKING;
	return a == b || (a & b & ~OTHER_USER) || ((a & locking) && (b & locking));
}

/* Returns whether two reasons can be combined. They cannot if both change the same word or the same state. */
static int together(const struct reason *one, const struct reason *two)
{
	for (int i = 0; i < EDITS; i++)
		for (int j = 0; j < EDITS; j++) {
			const struct edit *a = &one->edits[i], *b = &two->edits[j];
			if (!a->kind || !b->kind)
				continue;
			if (a->kind == '!' && b->kind == '!') {
				if (same_state(a->value, b->value))
					return 0;
			} else if (a->kind != '!' && b->kind != '!' && a->word == b->word && (a->kind == '=' || b->kind == '=')) {
				return 0;
			}
		}
	return 1;
}

/* Replaces the words whose values are known only at run time. */
static void resolve(unsigned long *words)
{
	for (int i = 0; i < 6; i++)
		switch (words[i]) {
		case SEGMENT:
			words[i] = (unsigned long)segment;
			break;
		case LENT_SEGMENT:
			words[i] = (unsigned long)lent_segment;
			break;
		case REMOVED_SEGMENT:
			words[i] = (unsigned long)removed_segment;
			break;
		case SELF:
			words[i] = (unsigned long)getpid();
			break;
		case PARENT:
			words[i] = (unsigned long)getppid();
			break;
		}
}

static _Noreturn void make(const struct call *call, const struct reason *one, const struct reason *two)
{
	unsigned long words[24], state = 0;
	memcpy(words, call->words, sizeof words);
	prepare_child(call);
	if (one)
		edit(words, one, &state);
	if (two)
		edit(words, two, &state);
	prepare_named(words[0]);
	resolve(words);
	memcpy(structure, words + 8, sizeof structure);
	enter_state(state);
	errno = 0;
	long result = syscall(call->number, words[0], words[1], words[2], words[3], words[4], words[5]);
	int error = errno;
	lift_limit_of_files();
	if (result == -1 || (call->number == SYS_ioctl && result < 0))
		printf("%s\n", name_of(error));
	else
		printf("ok\n");
	fflush(stdout);
	_exit(0);
}

static void once(const struct call *call, const struct reason *one, const struct reason *two)
{
	printf("%s%s%s%s%s: ", call->name, one ? ", " : "", one ? one->name : "", two ? " + " : "", two ? two->name : "");
	fflush(stdout);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		make(call, one, two);
	int status = wait_for(child);
	restore_controls();
	if (!exited(status, 0))
		printf("ended with %x\n", status);
	/* Reverts SHM_LOCK, which would affect the next call. */
	shmctl(lent_segment, SHM_UNLOCK, NULL);
}

static void every(const struct call *call)
{
	fill_pool(is_on_huge_pages(call) ? POOL : "0");
	once(call, NULL, NULL);
	for (int a = 0; a < REASONS && call->reasons[a].name; a++) {
		once(call, &call->reasons[a], NULL);
		for (int b = a + 1; b < REASONS && call->reasons[b].name; b++)
			if (together(&call->reasons[a], &call->reasons[b]))
				once(call, &call->reasons[a], &call->reasons[b]);
	}
}

int main(int count, char **arguments)
{
	prepare();
	for (int i = 0; i < TABLES; i++)
		for (size_t j = 0; j < tables[i].count; j++)
			if (count < 2 || strcmp(arguments[1], tables[i].calls[j].name) == 0)
				every(&tables[i].calls[j]);
	fill_pool("0");
	remove_segments();
	remove_group();
	remove_files();
	return 0;
}
