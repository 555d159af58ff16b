/* Do the files in /proc and /sys report the same about the CPUs as system calls and the CPUs themselves?
 */
#include "check.h"
#include <dirent.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <time.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

static char text[262144];

/* Reads a file into `text`, and appends a NUL. */
static char *file(const char *name)
{
	int opened = open(name, O_RDONLY);
	size_t length = 0;
	ssize_t count = 0;
	NEED(opened >= 0);
	while ((count = read(opened, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)count;
	NEED(count == 0);
	text[length] = 0;
	close(opened);
	return text;
}

/* Returns the text after a key at the beginning of a line, up to the end of the line. */
static char *value(char *from, const char *key)
{
	static char line[8192];
	size_t length = strlen(key);
	for (char *at = from; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		if (strncmp(at, key, length) == 0) {
			snprintf(line, sizeof line, "%.*s", (int)strcspn(at + length, "\n"), at + length);
			return line;
		}
	}
	return NULL;
}

static int count_lines(const char *from, const char *key)
{
	int count = 0;
	for (const char *at = from; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		count += strncmp(at, key, strlen(key)) == 0;
	return count;
}

/* Returns the number of CPUs in a list such as 0,2-3. */
static int listed(const char *list)
{
	int count = 0;
	while (*list >= '0' && *list <= '9') {
		char *end;
		long first = strtol(list, &end, 10), last = first;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		count += (int)(last - first + 1);
		list = *end == ',' ? end + 1 : end;
	}
	return count;
}

static void processors(int count)
{
	CHECK_EQ(count_lines(file("/proc/cpuinfo"), "processor\t: "), count);
	char vendor[13] = "";
#if defined __x86_64__
	unsigned registers[4];
	__cpuid(0, registers[0], registers[1], registers[2], registers[3]);
	memcpy(vendor, &registers[1], 4);
	memcpy(vendor + 4, &registers[3], 4);
	memcpy(vendor + 8, &registers[2], 4);
#endif
	char *found = value(file("/proc/cpuinfo"), "vendor_id\t: ");
	CHECK(found && strcmp(found, vendor) == 0);
	found = value(text, "flags\t\t:");
	CHECK(found && strstr(found, " sse2 ") && strstr(found, " lm "));
	found = value(text, "model name\t: ");
	CHECK(found && strlen(found) > 3);
	CHECK_EQ(listed(file("/sys/devices/system/cpu/online")), count);
	CHECK(listed(file("/sys/devices/system/cpu/possible")) >= count);
	CHECK(listed(file("/sys/devices/system/cpu/present")) >= count);
	CHECK(atoi(file("/sys/devices/system/cpu/kernel_max")) + 1 >= count);
	DIR *folder = opendir("/sys/devices/system/cpu");
	NEED(folder);
	int folders = 0, number;
	char rest;
	for (struct dirent *entry; (entry = readdir(folder));)
		folders += sscanf(entry->d_name, "cpu%d%c", &number, &rest) == 1;
	closedir(folder);
	CHECK(folders >= count);
	CHECK_EQ(listed(file("/sys/devices/system/cpu/cpu0/topology/core_siblings_list")) >= 1, 1);
	CHECK(atoi(file("/sys/devices/system/cpu/cpu0/topology/physical_package_id")) >= 0);
	CHECK_FAILS(open("/sys/devices/system/cpu/cpu9999", O_RDONLY), ENOENT);
	CHECK_EQ(listed(file("/sys/devices/system/node/node0/cpulist")) >= 1, 1);
	CHECK_EQ(file("/sys/devices/system/node/online")[0], '0');
	CHECK(strstr(file("/sys/devices/system/node/node0/meminfo"), "Node 0 MemTotal:"));
}

static long long number(const char *name, const char *key)
{
	char *found = value(file(name), key);
	return found ? atoll(found) : -1;
}

static void statistics(int count)
{
	CHECK_EQ(count_lines(file("/proc/stat"), "cpu"), count + 1);
	CHECK(number("/proc/stat", "btime ") > 0);
	CHECK(number("/proc/stat", "procs_running ") >= 1);
	CHECK_EQ(number("/proc/stat", "procs_blocked ") >= 0, 1);
	long long forks = number("/proc/stat", "processes "), switches = number("/proc/stat", "ctxt ");
	long long interrupts = number("/proc/stat", "intr ");
	long long idle_before = 0, user_before = 0, idle = 0, user = 0;
	CHECK_EQ(sscanf(file("/proc/stat"), "cpu %lld %*d %*d %lld", &user_before, &idle_before), 2);
	/* Runs a child that sleeps, then works for a fifth of a second. */
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(50000);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	struct timespec begin, now;
	volatile unsigned spin = 0;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 100000; i++)
			spin += (unsigned)i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 200000000L);
	CHECK(number("/proc/stat", "processes ") > forks);
	CHECK(number("/proc/stat", "ctxt ") > switches);
	CHECK(number("/proc/stat", "intr ") > interrupts);
	CHECK_EQ(sscanf(file("/proc/stat"), "cpu %lld %*d %*d %lld", &user, &idle), 2);
	CHECK(user - user_before >= 10);
	double up, rest;
	CHECK_EQ(sscanf(file("/proc/uptime"), "%lf %lf", &up, &rest), 2);
	clock_gettime(CLOCK_BOOTTIME, &now);
	CHECK(up <= now.tv_sec + 1.0 && up + 2 >= now.tv_sec);

	double loads[3];
	int running, threads, last;
	CHECK_EQ(sscanf(file("/proc/loadavg"), "%lf %lf %lf %d/%d %d", &loads[0], &loads[1], &loads[2], &running, &threads,
			&last),
		 6);
	CHECK(running >= 1 && threads >= 1 && last >= getpid());
	struct sysinfo info;
	CHECK_EQ(sysinfo(&info), 0);
	CHECK(info.loads[0] / 65536.0 - loads[0] < 0.5 && loads[0] - info.loads[0] / 65536.0 < 0.5);

	file("/proc/interrupts");
	int columns = 0;
	char *line = strndup(text, strcspn(text, "\n"));
	for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
		columns += strncmp(word, "CPU", 3) == 0;
	free(line);
	CHECK_EQ(columns, count);
	for (int row = 0; row < 4; row++) {
		static const char *const names[] = { "LOC:", "RES:", "CAL:", "TLB:" };
		char *at = strstr(text, names[row]);
		if (!CHECK(at))
			continue;
		at += 4;
		for (int cpu = 0; cpu < count; cpu++) {
			char *end;
			CHECK(strtoll(at, &end, 10) >= 0 && end != at);
			at = end;
		}
	}
}

static void own_status(void)
{
	char *found = value(file("/proc/self/status"), "Cpus_allowed_list:\t");
	cpu_set_t set;
	CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
	CHECK(found && listed(found) == CPU_COUNT(&set));
	long long before = number("/proc/self/status", "voluntary_ctxt_switches:\t");
	for (int i = 0; i < 5; i++)
		usleep(1000);
	CHECK(number("/proc/self/status", "voluntary_ctxt_switches:\t") >= before + 5);
	CHECK_EQ(number("/proc/self/status", "Threads:\t"), 1);
	found = value(file("/proc/self/status"), "State:\t");
	CHECK(found && found[0] == 'R');
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGUSR2, SIG_IGN);
	kill(getpid(), SIGUSR1);
	found = value(file("/proc/self/status"), "SigBlk:\t");
	CHECK(found && strtoull(found, NULL, 16) == 1ULL << (SIGUSR1 - 1));
	found = value(text, "SigIgn:\t");
	CHECK(found && strtoull(found, NULL, 16) & 1ULL << (SIGUSR2 - 1));
	found = value(text, "ShdPnd:\t");
	CHECK(found && strtoull(found, NULL, 16) == 1ULL << (SIGUSR1 - 1));
	/* The states of a child: sleeping while it waits, then stopped, then zombie after it has exited. */
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		char byte;
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
	}
	char name[64];
	snprintf(name, sizeof name, "/proc/%d/status", child);
	for (int turn = 0; turn < 100 && (found = value(file(name), "State:\t")) && found[0] == 'R'; turn++)
		usleep(1000);
	CHECK(found && found[0] == 'S');
	kill(child, SIGSTOP);
	CHECK_EQ(waitpid(child, NULL, WUNTRACED), child);
	found = value(file(name), "State:\t");
	CHECK(found && found[0] == 'T');
	kill(child, SIGCONT);
	close(ends[1]);
	siginfo_t info;
	CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	found = value(file(name), "State:\t");
	CHECK(found && found[0] == 'Z');
	CHECK(exited(wait_for(child), 0));
}

int main(void)
{
	int count = (int)sysconf(_SC_NPROCESSORS_ONLN);
	processors(count);
	statistics(count);
	own_status();
	CHECK(atoi(file("/proc/sys/kernel/pid_max")) > 300);
	CHECK(atoi(file("/proc/sys/kernel/threads-max")) > 300);
	CHECK_EQ(atoi(file("/proc/sys/kernel/ngroups_max")), 65536);
	CHECK(atoi(file("/proc/sys/kernel/cap_last_cap")) >= 37);
	CHECK_EQ(strlen(file("/proc/sys/kernel/random/uuid")), 37);
	return checked("proc_cpu");
}
