/* Does a process lose a privilege when it drops the capability for it?
 *
 * For several privileges of root, the program checks that the privilege is present, drops it by capset or by
 * another user ID, and checks that it is absent. A privilege that was dropped permanently must not return,
 * also after exec and with a saved user ID.
 */
#include "check.h"

/* From include/uapi/linux/capability.h, which older kernel headers lack. */
enum {
	_LINUX_CAPABILITY_VERSION_3 = 0x20080522,
	CAP_DAC_OVERRIDE = 1,
	CAP_DAC_READ_SEARCH = 2,
	CAP_KILL = 5,
	CAP_SETUID = 7,
	CAP_IPC_LOCK = 14,
	CAP_SYS_RESOURCE = 24,
};

struct __user_cap_header_struct {
	uint32_t version;
	int pid;
};

struct __user_cap_data_struct {
	uint32_t effective, permitted, inheritable;
};

static int get_sets(struct __user_cap_data_struct *sets)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	return (int)syscall(SYS_capget, &header, sets);
}

static int set_sets(const struct __user_cap_data_struct *sets)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	return (int)syscall(SYS_capset, &header, sets);
}

static void give_up(unsigned capability)
{
	struct __user_cap_data_struct sets[2];
	NEED(get_sets(sets) == 0);
	sets[capability / 32].effective &= ~(1U << (capability % 32));
	sets[capability / 32].permitted &= ~(1U << (capability % 32));
	NEED(set_sets(sets) == 0);
}

static unsigned long long status_row(const char *row)
{
	char text[4096] = "";
	int file = open("/proc/self/status", O_RDONLY);
	NEED(file >= 0 && read(file, text, sizeof text - 1) > 0);
	close(file);
	const char *found = strstr(text, row);
	NEED(found != NULL);
	return strtoull(found + strlen(row), NULL, 16);
}

static void locking(void *unused)
{
	(void)unused;
	struct rlimit limit = { PAGE, PAGE };
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	char *memory = anonymous(4 * PAGE);
	NEED(memory != NULL);
	CHECK_EQ(mlock(memory, 4 * PAGE), 0);
	CHECK_EQ(munlock(memory, 4 * PAGE), 0);
	give_up(CAP_IPC_LOCK);
	CHECK_FAILS(mlock(memory, 4 * PAGE), ENOMEM);
	CHECK_EQ(mlock(memory, PAGE), 0);
}

static void limits(void *unused)
{
	(void)unused;
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_CORE, &limit) == 0);
	limit.rlim_max = limit.rlim_cur = 0;
	CHECK_EQ(setrlimit(RLIMIT_CORE, &limit), 0);
	/* In a container, the process may lack CAP_SYS_RESOURCE from the start. */
	if (status_row("CapEff:\t") >> CAP_SYS_RESOURCE & 1) {
		limit.rlim_max = 1;
		CHECK_EQ(setrlimit(RLIMIT_CORE, &limit), 0);
		give_up(CAP_SYS_RESOURCE);
	}
	limit.rlim_max = 2;
	CHECK_FAILS(setrlimit(RLIMIT_CORE, &limit), EPERM);
}

static void permissions(void *unused)
{
	(void)unused;
	int file = open("/tmp/privilege", O_CREAT | O_RDWR, 0);
	NEED(file >= 0);
	CHECK_EQ(access("/tmp/privilege", R_OK | W_OK), 0);
	close(file);
	give_up(CAP_DAC_OVERRIDE);
	give_up(CAP_DAC_READ_SEARCH);
	CHECK_FAILS(open("/tmp/privilege", O_RDWR), EACCES);
	CHECK_EQ(unlink("/tmp/privilege"), 0);
}

static void users(void *unused)
{
	(void)unused;
	give_up(CAP_SETUID);
	CHECK_FAILS(setuid(1000), EPERM);
	CHECK_EQ(getuid(), 0);
}

/* A permitted capability can be made effective again. Another capability cannot. */
static void sets(void *unused)
{
	(void)unused;
	struct __user_cap_data_struct before[2], now[2];
	NEED(get_sets(before) == 0);
	memcpy(now, before, sizeof now);
	now[0].effective = 0;
	CHECK_EQ(set_sets(now), 0);
	CHECK_EQ(status_row("CapEff:\t") & 0xffffffff, 0);
	CHECK_FAILS(setuid(1000), EPERM);
	CHECK_EQ(set_sets(before), 0);
	CHECK_EQ(status_row("CapEff:\t") & 0xffffffff, before[0].effective);
	give_up(CAP_KILL);
	CHECK_FAILS(set_sets(before), EPERM);
	CHECK_EQ(status_row("CapPrm:\t") >> CAP_KILL & 1, 0);
}

/* A change to another user ID clears all capabilities. A change of only the effective user ID clears the
 * effective capabilities, until that ID is 0 again. */
static void ids(void *unused)
{
	(void)unused;
	unsigned long long all = status_row("CapPrm:\t");
	CHECK(all != 0);
	CHECK_EQ(seteuid(1000), 0);
	CHECK_EQ(status_row("CapEff:\t"), 0);
	CHECK_EQ(status_row("CapPrm:\t"), all);
	CHECK_EQ(seteuid(0), 0);
	CHECK_EQ(status_row("CapEff:\t"), all);
	CHECK_EQ(setresuid(1000, 1000, 1000), 0);
	CHECK_EQ(status_row("CapPrm:\t"), 0);
	CHECK_FAILS(setuid(0), EPERM);
}

int main(void)
{
	if (getuid() != 0) {
		printf("privilege: needs root\n");
		return 0;
	}
	CHECK(exited(in_child(locking, NULL), 0));
	CHECK(exited(in_child(limits, NULL), 0));
	CHECK(exited(in_child(permissions, NULL), 0));
	CHECK(exited(in_child(users, NULL), 0));
	CHECK(exited(in_child(sets, NULL), 0));
	CHECK(exited(in_child(ids, NULL), 0));
	return checked("privilege");
}
