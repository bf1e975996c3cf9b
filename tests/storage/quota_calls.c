/* A fake of the kernel's project quotas. It decodes the arguments of ioctl and quotactl with the
 * structures fsxattr and if_dqblk of the kernel's headers and logs them with the names in these
 * headers. It is loaded before libc (LD_PRELOAD); all other calls are passed to the kernel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MOST 64
#define USED 123456789ULL

static struct { ino_t inode; struct fsxattr facts; } files[MOST];
static struct { unsigned int id; struct if_dqblk block; } projects[MOST];

static void note(const char *format, ...) {
    FILE *log = fopen(getenv("QUOTA_CALLS"), "a");
    va_list words;
    va_start(words, format);
    vfprintf(log, format, words);
    va_end(words);
    fclose(log);
}

static struct fsxattr *file_of(int descriptor) {
    struct stat about;
    int n;
    if (fstat(descriptor, &about)) return NULL;
    for (n = 0; n < MOST - 1 && files[n].inode && files[n].inode != about.st_ino; n++);
    files[n].inode = about.st_ino;
    return &files[n].facts;
}

static struct if_dqblk *project_of(unsigned int id) {
    int n;
    for (n = 0; n < MOST - 1 && projects[n].id && projects[n].id != id; n++);
    projects[n].id = id;
    return &projects[n].block;
}

int ioctl(int descriptor, unsigned long request, ...) {
    va_list words;
    va_start(words, request);
    void *argument = va_arg(words, void *);
    va_end(words);
    /* Python passes the number as an int, so its upper 32 bits are undefined. */
    unsigned int number = (unsigned int)request;
    if (number == (unsigned int)FS_IOC_FSGETXATTR) {
        memcpy(argument, file_of(descriptor), sizeof(struct fsxattr));
        return 0;
    }
    if (number == (unsigned int)FS_IOC_FSSETXATTR) {
        struct fsxattr *asked = argument;
        note("FS_IOC_FSSETXATTR projid=%u inherits=%d\n", asked->fsx_projid,
             (asked->fsx_xflags & FS_XFLAG_PROJINHERIT) != 0);
        memcpy(file_of(descriptor), asked, sizeof *asked);
        return 0;
    }
    int (*real)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
    return real(descriptor, request, argument);
}

static long quotactl_fd(unsigned int command, unsigned int id, struct if_dqblk *block) {
    struct if_dqblk *kept = project_of(id);
    if ((command & SUBCMDMASK) != PRJQUOTA) { errno = EINVAL; return -1; }
    switch (command >> SUBCMDSHIFT) {
    case Q_GETQUOTA & 0xffffffff:
        *block = *kept;
        block->dqb_curspace = USED;
        block->dqb_valid = QIF_ALL;
        return 0;
    case Q_SETQUOTA & 0xffffffff:
        note("Q_SETQUOTA id=%u limits_only=%d hard=%llu soft=%llu\n", id,
             block->dqb_valid == QIF_BLIMITS, (unsigned long long)block->dqb_bhardlimit,
             (unsigned long long)block->dqb_bsoftlimit);
        kept->dqb_bhardlimit = block->dqb_bhardlimit;
        return 0;
    }
    errno = EINVAL;
    return -1;
}

long syscall(long number, ...) {
    va_list words;
    long a[6];
    va_start(words, number);
    for (int n = 0; n < 6; n++) a[n] = va_arg(words, long);
    va_end(words);
    if (number == SYS_quotactl_fd)
        return quotactl_fd((unsigned int)a[1], (unsigned int)a[2], (struct if_dqblk *)a[3]);
    long (*real)(long, ...) = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
