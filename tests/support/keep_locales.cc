// Preloaded into nbdkit together with a sanitizer's runtime, and only then.
//
// With that runtime loaded, any nbdkit that has formatted an errno ends in a hang: the C library's
// count of readers of its locale lock is then one too low, and libp11-kit, which nbdkit is linked
// with, frees a locale in exit() and waits for that lock. Seen with glibc 2.36, GCC 12's libasan
// and libtsan, and with nbdkit's own plugins too. So locales are not freed.
#include <locale.h>

extern "C" [[gnu::visibility("default")]] void freelocale(locale_t) {}
