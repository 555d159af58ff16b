/* Reads the messages of userfaultfds for the interpreter of scripts, and answers by rules that a script gives.
 *
 * A thread that causes an event waits until its message is read, so a separate thread reads the messages. It
 * records each message, and the error of an answer that failed. After each line of the script, the process
 * that executed the line requests the recorded text from the reader, which first reads all remaining
 * messages.
 *
 * If the answer to a fault fails, the page is unregistered, so that no thread waits for ever.
 */
#ifndef TOLD_H
#define TOLD_H

#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOLD_PAGE = 4096, TOLD_TEXT = 1 << 16, SOURCES = 24 };

/* The memory that parent and child share with the reader thread. The reader is a thread of the parent. */
struct told {
	size_t length;
	char text[TOLD_TEXT];
	/* The IDs of the threads that fault: the parent's and the child's. */
	pid_t threads[2];
};

/* A userfaultfd that the reader reads, and the answers to its messages. */
struct source {
	int descriptor;
	char name;
	/* The number of forks between this userfaultfd and the one that the script named. */
	int generation;
	char answers[16];
};

static struct told *told_shared;
static char *told_range;
static long told_pages;
static struct source sources[SOURCES];
static int source_count, reader_runs;
static int question[2], answered[2];

static void __attribute__((format(printf, 1, 2))) note(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	size_t room = TOLD_TEXT - told_shared->length;
	int length = vsnprintf(told_shared->text + told_shared->length, room, format, arguments);
	va_end(arguments);
	if (length < 0 || (size_t)length >= room)
		_exit(5);
	told_shared->length += length;
}

/* Records an address as a page of the range, and the offset in the page. */
static void note_place(uint64_t address)
{
	int64_t offset = (int64_t)(address - (uintptr_t)told_range);
	if (offset < 0 || offset > told_pages * TOLD_PAGE) {
		note(" elsewhere");
		return;
	}
	note(" %lld", (long long)offset / TOLD_PAGE);
	if (offset % TOLD_PAGE)
		note("+%lld", (long long)offset % TOLD_PAGE);
}

static int has(const struct source *source, char answer)
{
	return strchr(source->answers, answer) != NULL;
}

/* Repeats a command while it fails with EAGAIN. It fails so until a memory event has been read and the thread
 * that caused the event has continued. */
static int persist(int descriptor, unsigned long command, void *argument)
{
	int result;
	while ((result = ioctl(descriptor, command, argument)) < 0 && errno == EAGAIN)
		sched_yield();
	return result;
}

static int fill_missing(const struct source *source, struct pages page)
{
	static char contents[TOLD_PAGE];
	struct zeroing zeroing = { .pages = page };
	struct filling filling = { page.start, (uintptr_t)contents, page.length, 0, 0 };
	if (has(source, 'z'))
		return persist(source->descriptor, ZERO, &zeroing);
	if (has(source, 'x'))
		return persist(source->descriptor, POISON, &zeroing);
	memset(contents, 200 + (page.start - (uintptr_t)told_range) / TOLD_PAGE % 50, sizeof contents);
	filling.mode = (has(source, 'w') ? FILL_PROTECTED : 0) | (has(source, 'd') ? FILL_ASLEEP : 0);
	int result = persist(source->descriptor, FILL, &filling);
	if (result == 0 && has(source, 'd'))
		result = ioctl(source->descriptor, WAKE, &page);
	return result;
}

static void answer_fault(const struct source *source, const struct message *message)
{
	struct pages page = { message->words[1] & ~(TOLD_PAGE - 1UL), TOLD_PAGE };
	struct protection none = { .pages = page };
	struct zeroing zeroing = { .pages = page };
	int result;
	if (has(source, 'u'))
		result = ioctl(source->descriptor, UNWATCH, &page);
	else if (message->words[0] & FAULT_PROTECTED)
		result = persist(source->descriptor, PROTECT, &none);
	else if (message->words[0] & FAULT_ARMED)
		result = persist(source->descriptor, ARM, &none);
	else if (message->words[0] & FAULT_MINOR)
		result = persist(source->descriptor, SHOW, &zeroing);
	else
		result = fill_missing(source, page);
	if (result == 0)
		return;
	note(" errno %d", errno);
	if (ioctl(source->descriptor, UNWATCH, &page))
		note(" still watched: errno %d", errno);
}

static void note_fault(const struct message *message)
{
	uint64_t flags = message->words[0], thread = message->words[2];
	note(" fault");
	note_place(message->words[1]);
	note("%s%s%s%s", flags & FAULT_STORES ? " store" : "", flags & FAULT_PROTECTED ? " protected" : "",
	     flags & FAULT_MINOR ? " minor" : "", flags & FAULT_ARMED ? " armed" : "");
	if (flags & ~15ULL)
		note(" flags %llx", (unsigned long long)flags);
	if (thread)
		note(" by %s", thread == (uint64_t)told_shared->threads[0]   ? "P"
			       : thread == (uint64_t)told_shared->threads[1] ? "C"
									     : "another");
}

static void add_source(int descriptor, const struct source *like)
{
	if (source_count == SOURCES)
		_exit(5);
	sources[source_count] = *like;
	sources[source_count].descriptor = descriptor;
	sources[source_count++].generation++;
}

/* Reads and answers one message. Returns false if there is none. */
static int hear(struct source *source)
{
	struct message message;
	ssize_t length = read(source->descriptor, &message, sizeof message);
	if (length < 0 && errno == EAGAIN)
		return 0;
	note("\n  told %c", source->name);
	if (source->generation)
		note("%d", source->generation);
	if (length != sizeof message) {
		note(" %d errno %d", (int)length, errno);
		close(source->descriptor);
		source->descriptor = -1;
		return 1;
	}
	switch (message.event) {
	case TOLD_FAULT:
		note_fault(&message);
		answer_fault(source, &message);
		break;
	case TOLD_FORK:
		note(" fork%s", fcntl(message.words[0], F_GETFD) & FD_CLOEXEC ? "" : " open at exec");
		if (has(source, 'k'))
			add_source(message.words[0], source);
		else
			close(message.words[0]);
		break;
	case TOLD_MOVE:
		note(" move");
		note_place(message.words[0]);
		note_place(message.words[1]);
		note(" %llu", (unsigned long long)message.words[2] / TOLD_PAGE);
		if (message.words[2] % TOLD_PAGE)
			note(" and a part");
		break;
	case TOLD_REMOVE:
	case TOLD_UNMAP:
		note(message.event == TOLD_REMOVE ? " remove" : " unmap");
		note_place(message.words[0]);
		note(" %llu", (unsigned long long)(message.words[1] - message.words[0]) / TOLD_PAGE);
		break;
	default:
		note(" event %d", message.event);
	}
	return 1;
}

/* Closes the descriptor without reading from it, like a monitor that dies. */
static int abandon(struct source *source)
{
	note("\n  told %c and closed", source->name);
	close(source->descriptor);
	source->descriptor = -1;
	return 1;
}

/* Closes the userfaultfds of children that have exited, because they get no more messages. */
static void close_heirs(void)
{
	for (int i = 0; i < source_count; i++) {
		struct source *source = &sources[i];
		struct pages page = { (uintptr_t)told_range, TOLD_PAGE };
		struct zeroing zeroing = { .pages = page };
		if (source->descriptor < 0 || source->generation == 0)
			continue;
		if (ioctl(source->descriptor, ZERO, &zeroing) == 0 || errno != ESRCH)
			note("\n  told %c%d not to be gone: errno %d", source->name, source->generation, errno);
		close(source->descriptor);
		source->descriptor = -1;
	}
	while (source_count > 0 && sources[source_count - 1].descriptor < 0)
		source_count--;
}

static void *listen_for_ever(void *unused)
{
	for (;;) {
		struct pollfd polled[SOURCES + 1] = { { question[0], POLLIN, 0 } };
		int count = source_count, heard = 0;
		char byte;
		for (int i = 0; i < count; i++)
			polled[i + 1] = (struct pollfd){ sources[i].descriptor, POLLIN, 0 };
		if (poll(polled, count + 1, -1) < 0)
			_exit(5);
		for (int i = 0; i < count; i++)
			if (polled[i + 1].revents)
				heard |= has(&sources[i], 'q') ? abandon(&sources[i]) : hear(&sources[i]);
		if (heard || !polled[0].revents)
			continue;
		if (read(question[0], &byte, 1) != 1)
			_exit(5);
		if (byte == 'j')
			close_heirs();
		if (write(answered[1], &byte, 1) != 1)
			_exit(5);
	}
	return unused;
}

/* Makes the reader read all messages, and waits until its notes are in the shared text. `why` is 'j' after a child has
   exited. */
static void ask_reader(char why)
{
	if (write(question[1], &why, 1) != 1 || read(answered[0], &why, 1) != 1)
		_exit(5);
}

/* Returns the descriptor of the userfaultfd that the script created with the name `name` or, for 'h', of the
 * newest userfaultfd of a child. Returns -1 if there is none. */
static int source_named(char name)
{
	for (int i = source_count - 1; i >= 0; i--)
		if (sources[i].descriptor >= 0 &&
		    (name == 'h' ? sources[i].generation > 0 : sources[i].name == name && !sources[i].generation))
			return sources[i].descriptor;
	return -1;
}

/* Creates a userfaultfd with these features and answers. Returns its descriptor. */
static int add_watcher(char name, uint64_t features, const char *answers)
{
	struct source source = { .name = name, .generation = -1 };
	int descriptor = watcher(features);
	pthread_t thread;
	if (descriptor < 0)
		return descriptor;
	snprintf(source.answers, sizeof source.answers, "%s", answers);
	add_source(descriptor, &source);
	if (!reader_runs) {
		told_shared->length = 0;
		told_shared->threads[0] = getpid();
		if (pipe(question) || pipe(answered) || pthread_create(&thread, NULL, listen_for_ever, NULL))
			_exit(5);
		reader_runs = 1;
	}
	ask_reader('a');
	return descriptor;
}

#endif
