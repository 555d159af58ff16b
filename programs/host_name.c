/* Can a privileged program, and no other program, set the host name and the NIS domain name?
 *
 * uname, sethostname, setdomainname (kernel/sys.c of Linux), and hostname and domainname in /proc/sys/kernel.
 */
#include "check.h"
#include <sys/utsname.h>

#define HOST "/proc/sys/kernel/hostname"
#define DOMAIN "/proc/sys/kernel/domainname"

static const char *host(void)
{
	static struct utsname names;
	CHECK_EQ(uname(&names), 0);
	return names.nodename;
}

static const char *domain(void)
{
	static struct utsname names;
	CHECK_EQ(uname(&names), 0);
	return names.domainname;
}

static int file_is(const char *path, const char *expected)
{
	char text[128] = "";
	int file = open(path, O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	return length == (ssize_t)strlen(expected) && strcmp(text, expected) == 0;
}

static void write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	CHECK(file >= 0);
	CHECK_EQ(write(file, text, strlen(text)), (long)strlen(text));
	close(file);
}

/* Makes the system call with arguments that the C library's declarations do not permit. */
static long set(long call, const char *name, long length)
{
	return syscall(call, name, length);
}

static void unprivileged(void *unused)
{
	(void)unused;
	CHECK_EQ(setuid(1000), 0);
	CHECK_FAILS(set(SYS_sethostname, "other", 5), EPERM);
	CHECK_FAILS(set(SYS_setdomainname, NULL, 1000), EPERM);
	CHECK_FAILS(open(HOST, O_WRONLY), EACCES);
	CHECK(strcmp(host(), "second") == 0);
}

int main(void)
{
	char before[65], domain_before[65], longest[65];
	strcpy(before, host());
	strcpy(domain_before, domain());
	memset(longest, 'x', sizeof longest);

	CHECK_EQ(sethostname("first", 5), 0);
	CHECK(strcmp(host(), "first") == 0);
	CHECK(file_is(HOST, "first\n"));
	CHECK_EQ(sethostname("second and more", 6), 0);
	CHECK(strcmp(host(), "second") == 0);
	CHECK(strcmp(domain(), domain_before) == 0);
	CHECK(exited(in_child(unprivileged, NULL), 0));

	CHECK_FAILS(set(SYS_sethostname, longest, 65), EINVAL);
	CHECK_FAILS(set(SYS_sethostname, longest, -1), EINVAL);
	CHECK_FAILS(set(SYS_sethostname, (char *)1, 3), EFAULT);
	CHECK(strcmp(host(), "second") == 0);
	CHECK_EQ(sethostname(longest, 64), 0);
	CHECK_EQ(strlen(host()), 64);
	CHECK_EQ(sethostname("a\0b", 3), 0);
	CHECK(strcmp(host(), "a") == 0);
	CHECK(file_is(HOST, "a\n"));
	CHECK_EQ(sethostname("", 0), 0);
	CHECK(strcmp(host(), "") == 0);
	CHECK(file_is(HOST, "\n"));

	CHECK_EQ(setdomainname("example", 7), 0);
	CHECK(strcmp(domain(), "example") == 0);
	CHECK(file_is(DOMAIN, "example\n"));
	write_file(DOMAIN, "line\nother\n");
	CHECK(strcmp(domain(), "line") == 0);
	write_file(HOST, "written");
	CHECK(strcmp(host(), "written") == 0);

	CHECK_EQ(sethostname(before, strlen(before)), 0);
	CHECK_EQ(setdomainname(domain_before, strlen(domain_before)), 0);
	return checked("host_name");
}
