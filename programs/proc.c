/* Do the files in /proc report the facts in the format that programs parse?
 */
#include "check.h"
#include <sys/utsname.h>
#include <dirent.h>
#include <sched.h>
#include <sys/sysinfo.h>

struct area {
	unsigned long start, end, offset, inode;
	char rights[5], path[256];
	int found;
};

/* Returns the area in /proc/self/maps that contains the address. */
static struct area area_of(const void *address)
{
	struct area area = { .found = 0 };
	FILE *maps = fopen("/proc/self/maps", "r");
	NEED(maps != NULL);
	char line[512];
	unsigned long last_end = 0;
	while (fgets(line, sizeof line, maps)) {
		struct area now = { .found = 1 };
		unsigned major, minor;
		int path_at = 0;
		int fields = sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n", &now.start, &now.end, now.rights, &now.offset,
				    &major, &minor, &now.inode, &path_at);
		CHECK_EQ(fields, 7);
		line[strcspn(line, "\n")] = 0;
		if (path_at && path_at < (int)strlen(line) + 1)
			snprintf(now.path, sizeof now.path, "%s", line + path_at);
		/* The lines are in ascending order and do not overlap. Only the legacy vsyscall page is above all other
		 * areas. */
		CHECK(now.start < now.end && now.start >= last_end);
		last_end = now.end;
		if ((unsigned long)address >= now.start && (unsigned long)address < now.end)
			area = now;
	}
	fclose(maps);
	return area;
}

static char data = 1;

static void maps(void)
{
	char *guard = mmap(NULL, 7 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(guard != MAP_FAILED);
	char *memory = guard + 2 * PAGE;
	CHECK_EQ(mprotect(memory, 3 * PAGE, PROT_READ | PROT_WRITE), 0);
	struct area area = area_of(memory);
	CHECK(area.found);
	CHECK_EQ(area.start, (unsigned long)memory);
	CHECK_EQ(area.end - area.start, 3 * PAGE);
	CHECK(strcmp(area.rights, "rw-p") == 0);
	CHECK_EQ(area.offset, 0);
	CHECK_EQ(area.inode, 0);
	CHECK_EQ(area.path[0], 0);
	/* The area is split in three, and then merged again. */
	CHECK_EQ(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
	area = area_of(memory + PAGE);
	CHECK(area.start == (unsigned long)memory + PAGE && area.end == area.start + PAGE);
	CHECK(strcmp(area.rights, "r--p") == 0);
	CHECK_EQ(area_of(memory).end, area.start);
	CHECK_EQ(area_of(memory + 2 * PAGE).start, area.end);
	CHECK_EQ(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	area = area_of(memory);
	CHECK_EQ(area.end - area.start, 3 * PAGE);
	munmap(guard, 7 * PAGE);
	CHECK(!area_of(memory).found);

	char name[] = "/tmp/mapped-XXXXXX";
	int file = mkstemp(name);
	NEED(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	char *view = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 2 * PAGE);
	NEED(view != MAP_FAILED);
	area = area_of(view);
	struct stat stat;
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK(strcmp(area.rights, "r-xs") == 0);
	CHECK_EQ(area.offset, 2 * PAGE);
	CHECK_EQ(area.inode, stat.st_ino);
	CHECK(strcmp(area.path, name) == 0);
	CHECK_EQ(unlink(name), 0);
	strcat(area.path, " (deleted)");
	struct area deleted = area_of(view);
	CHECK(strcmp(deleted.path, area.path) == 0);
	munmap(view, PAGE);
	close(file);

	CHECK(strcmp(area_of(&area).path, "[stack]") == 0);
	CHECK(strstr(area_of(&data).path, "proc") != NULL);
	CHECK(strcmp(area_of(&data).rights, "rw-p") == 0);
	CHECK(strcmp(area_of((void *)(uintptr_t)maps).rights, "r-xp") == 0);
}

static void status(void)
{
	CHECK_EQ(row_in("/proc/self/status", "Pid"), getpid());
	CHECK_EQ(row_in("/proc/self/status", "Tgid"), getpid());
	CHECK_EQ(row_in("/proc/self/status", "PPid"), getppid());
	CHECK_EQ(row_in("/proc/self/status", "Uid"), getuid());
	CHECK_EQ(row_in("/proc/self/status", "Threads"), 1);
	/* Linux updates the count of resident pages in batches, so the reported number can be wrong by some
	 * tens of pages. */
	enum { PAGES = 4096 };
	long size = row_in("/proc/self/status", "VmSize"), resident = row_in("/proc/self/status", "VmRSS");
	CHECK(size > 0 && resident > 0 && resident <= size);
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	CHECK_EQ(row_in("/proc/self/status", "VmSize") - size, PAGES * 4);
	CHECK(labs(row_in("/proc/self/status", "VmRSS") - resident) < 1024);
	memset(memory, 1, PAGES * PAGE);
	CHECK(labs(row_in("/proc/self/status", "VmRSS") - resident - PAGES * 4) < 1024);
	CHECK(row_in("/proc/self/status", "VmHWM") >= PAGES * 4);
	CHECK_EQ(mlock(memory, 8 * PAGE), 0);
	CHECK_EQ(row_in("/proc/self/status", "VmLck"), 32);
	munmap(memory, PAGES * PAGE);
	CHECK_EQ(row_in("/proc/self/status", "VmSize"), size);
	CHECK_EQ(row_in("/proc/self/status", "VmLck"), 0);
	CHECK(labs(row_in("/proc/self/status", "VmRSS") - resident) < 1024);
}

/* Returns field `number` of /proc/self/stat. The number must be above 2, which is that of the name. */
static unsigned long stat_field(int number)
{
	char text[1024];
	FILE *file = fopen("/proc/self/stat", "r");
	NEED(file != NULL);
	size_t length = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[length] = 0;
	char *word = strrchr(text, ')');
	NEED(word != NULL);
	word = strtok(word + 1, " \n");
	for (int field = 3; word && field < number; field++)
		word = strtok(NULL, " \n");
	NEED(word != NULL);
	return strtoul(word, NULL, 10);
}

/* Checks the addresses of the program's code and data, and the CPU on which the program runs. */
static void stat_places(void)
{
	enum { PROCESSOR = 39, CODE = 26, DATA = 45 };
	unsigned long code[] = { stat_field(CODE), stat_field(CODE + 1) }, at = (uintptr_t)stat_places;
	CHECK(code[0] <= at && at < code[1]);
	unsigned long pages = (code[1] + PAGE - 1) / PAGE - code[0] / PAGE;
	CHECK_EQ(row_in("/proc/self/status", "VmExe"), pages * 4);
	at = (uintptr_t)&data;
	CHECK(code[1] <= at);
	CHECK(stat_field(DATA) <= at && at < stat_field(DATA + 1));
	cpu_set_t all, one;
	NEED(sched_getaffinity(0, sizeof all, &all) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
		CHECK_EQ(stat_field(PROCESSOR), cpu);
	}
	CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

static void stat_line(void)
{
	char text[1024];
	FILE *file = fopen("/proc/self/stat", "r");
	NEED(file != NULL);
	size_t length = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[length] = 0;
	int pid, ppid, pgrp, session;
	char name[32], state;
	unsigned long minor_faults, size, resident;
	char *after = strrchr(text, ')');
	NEED(after != NULL);
	CHECK_EQ(sscanf(text, "%d (%31[^)])", &pid, name), 2);
	CHECK_EQ(sscanf(after + 1, " %c %d %d %d %*d %*d %*u %lu", &state, &ppid, &pgrp, &session, &minor_faults), 5);
	CHECK_EQ(sscanf(after + 1,
			" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %lu %lu",
			&size, &resident),
		 2);
	CHECK_EQ(pid, getpid());
	CHECK(strcmp(name, "proc") == 0);
	CHECK_EQ(state, 'R');
	CHECK_EQ(ppid, getppid());
	CHECK_EQ(pgrp, getpgrp());
	CHECK_EQ(session, getsid(0));
	CHECK(minor_faults > 0);
	CHECK_EQ((long)size / 1024, row_in("/proc/self/status", "VmSize"));
	CHECK(resident > 0 && resident <= size / PAGE);
	int fields = 0;
	for (char *word = strtok(after + 1, " \n"); word; word = strtok(NULL, " \n"))
		fields++;
	CHECK_EQ(fields, 50);
}

/* A zombie has no memory and no mounts, so the files about them cannot be opened. */
static void without_memory(pid_t zombie)
{
	static const char *const files[] = { "mem", "pagemap", "smaps_rollup", "environ", "auxv" };
	char name[64];
	struct utsname system;
	NEED(uname(&system) == 0);
	/* Before Linux 6.18, some of these files could be opened and were empty. */
	int opened_before = strverscmp(system.release, "6.18") < 0;
	for (size_t i = 0; !opened_before && i < sizeof files / sizeof *files; i++) {
		snprintf(name, sizeof name, "/proc/%d/%s", zombie, files[i]);
		CHECK_FAILS(open(name, O_RDONLY), ESRCH);
	}
	snprintf(name, sizeof name, "/proc/%d/ksm_merging_pages", zombie);
	int merging = open(name, O_RDONLY);
	char byte;
	/* Not every kernel merges pages, and not every user may read this file. */
	CHECK(merging < 0 || read(merging, &byte, 1) == 0);
	close(merging);
	snprintf(name, sizeof name, "/proc/%d/mounts", zombie);
	CHECK_FAILS(open(name, O_RDONLY), EINVAL);
	snprintf(name, sizeof name, "/proc/%d/mountinfo", zombie);
	CHECK_FAILS(open(name, O_RDONLY), EINVAL);
}

/* Root may access settings only as their modes permit. */
static void settings(void)
{
	CHECK_FAILS(open("/proc/sys/kernel/ostype", O_RDWR), EACCES);
	CHECK_FAILS(open("/proc/sys/vm/drop_caches", O_RDONLY), EACCES);
}

/* lseek in /proc/self/mem accepts any position, and a read at an unmapped one fails. */
static void positions(void)
{
	char byte;
	int memory = open("/proc/self/mem", O_RDONLY);
	NEED(memory >= 0);
	CHECK_EQ(lseek(memory, -2 * 4096, SEEK_SET), -2 * 4096);
	CHECK_EQ(lseek(memory, -4096, SEEK_CUR), -3 * 4096);
	CHECK_FAILS(read(memory, &byte, 1), EIO);
	CHECK_FAILS(lseek(memory, 0, SEEK_END), EINVAL);
	CHECK_EQ(lseek(memory, (off_t)&byte, SEEK_SET), (off_t)&byte);
	CHECK_EQ(read(memory, &byte, 1), 1);
	close(memory);
}

static void others(char *program)
{
	char text[512];
	ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
	CHECK(length > 0 && text[0] == '/');
	text[length > 0 ? length : 0] = 0;
	CHECK(strstr(text, "/proc") != NULL);
	int file = open("/proc/self/cmdline", O_RDONLY);
	length = read(file, text, sizeof text - 1);
	CHECK_EQ(length, strlen(program) + 1);
	CHECK(length > 0 && memcmp(text, program, (size_t)length) == 0);
	close(file);

	int first = open("/dev/null", O_RDONLY);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", first);
	length = readlink(name, text, sizeof text - 1);
	CHECK_EQ(length, 9);
	CHECK(memcmp(text, "/dev/null", 9) == 0);
	DIR *folder = opendir("/proc/self/fd");
	NEED(folder != NULL);
	int seen = 0;
	struct dirent *entry;
	while ((entry = readdir(folder)) != NULL)
		seen += atoi(entry->d_name) == first && entry->d_name[0] != '.';
	CHECK_EQ(seen, 1);
	closedir(folder);
	close(first);
	CHECK_FAILS(open("/proc/4194304/stat", O_RDONLY), ENOENT);
	CHECK_FAILS(open("/proc/self/none", O_RDONLY), ENOENT);

	/* The files of a child are in the folder with its process ID. */
	pid_t child = fork_checked();
	if (child == 0)
		for (;;)
			pause();
	snprintf(name, sizeof name, "/proc/%d/status", child);
	CHECK_EQ(row_in(name, "PPid"), getpid());
	CHECK_EQ(kill(child, SIGKILL), 0);
	siginfo_t info;
	CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	FILE *zombie = fopen(name, "r");
	NEED(zombie != NULL);
	int is_zombie = 0;
	while (fgets(text, sizeof text, zombie))
		is_zombie |= strncmp(text, "State:\tZ", 8) == 0;
	fclose(zombie);
	CHECK(is_zombie);
	without_memory(child);
	wait_for(child);
	CHECK_FAILS(open(name, O_RDONLY), ENOENT);

	long total = row_in("/proc/meminfo", "MemTotal"), free = row_in("/proc/meminfo", "MemFree");
	CHECK(total > 0 && free > 0 && free < total);
	CHECK(row_in("/proc/meminfo", "MemAvailable") > 0);
	struct sysinfo system;
	CHECK_EQ(sysinfo(&system), 0);
	CHECK_EQ((long)(system.totalram / 1024 * system.mem_unit), total);
	FILE *mounts = fopen("/proc/mounts", "r");
	NEED(mounts != NULL);
	int root = 0, proc = 0;
	while (fgets(text, sizeof text, mounts)) {
		char what[128], where[128], type[64];
		CHECK_EQ(sscanf(text, "%127s %127s %63s", what, where, type), 3);
		root |= strcmp(where, "/") == 0;
		proc |= strcmp(where, "/proc") == 0 && strcmp(type, "proc") == 0;
	}
	fclose(mounts);
	CHECK(root && proc);
	struct utsname names;
	CHECK_EQ(uname(&names), 0);
	CHECK(strcmp(names.sysname, "Linux") == 0);
	CHECK(strcmp(names.machine, "x86_64") == 0);
}

int main(int argc, char **argv)
{
	NEED(argc == 1);
	maps();
	status();
	stat_line();
	stat_places();
	positions();
	settings();
	others(argv[0]);
	return checked("proc");
}
