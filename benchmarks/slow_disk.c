/* A disk that answers late: every fsync and fdatasync of a program that has this preloaded takes SYNC_DELAY_US longer.
 * Compiled and preloaded by benchmarks/slow_disk.py, into a database server or into a program with a SQLite in it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

typedef int (*sync_function)(int);

static void hold_back(void) {
    static long microseconds = -1;
    if (microseconds < 0) {
        const char *said = getenv("SYNC_DELAY_US");
        microseconds = said ? atol(said) : 0;
    }
    struct timespec left = {microseconds / 1000000, (microseconds % 1000000) * 1000};
    int kept = errno; /* a caller reads it after a failed sync */
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
    errno = kept;
}

int fsync(int file) {
    static sync_function real;
    if (!real) real = (sync_function)dlsym(RTLD_NEXT, "fsync");
    int result = real(file);
    hold_back();
    return result;
}

int fdatasync(int file) {
    static sync_function real;
    if (!real) real = (sync_function)dlsym(RTLD_NEXT, "fdatasync");
    int result = real(file);
    hold_back();
    return result;
}
