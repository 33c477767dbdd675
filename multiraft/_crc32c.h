/* CRC32C (Castagnoli, reflected), by the fastest way this machine has, chosen once at import.
 *
 * x86-64: three interleaved streams of the SSE4.2 instruction, which has a latency of three cycles
 * and a throughput of one; the streams are joined by a carry-less multiplication with x^n mod P
 * (Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", 2011; the
 * computation of x^n in O(log n) as in Peter Cawley's fast-crc32).
 * aarch64: its CRC instruction, one stream.  Elsewhere: eight tables ("slicing by 8", Kounavis and
 * Berry 2005).
 */
#ifndef MULTIRAFT_CRC32C_H
#define MULTIRAFT_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "_bytes.h"

#define MR_CRC_POLYNOMIAL 0x82F63B78u

static uint32_t mr_crc_tables[8][256];

static uint32_t mr_crc32c_portable(uint32_t crc, const uint8_t *at, size_t length) {
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint32_t low = mr_load_le32(at) ^ crc, high = mr_load_le32(at + 4);
        crc = mr_crc_tables[7][low & 0xFF] ^ mr_crc_tables[6][low >> 8 & 0xFF]
              ^ mr_crc_tables[5][low >> 16 & 0xFF] ^ mr_crc_tables[4][low >> 24]
              ^ mr_crc_tables[3][high & 0xFF] ^ mr_crc_tables[2][high >> 8 & 0xFF]
              ^ mr_crc_tables[1][high >> 16 & 0xFF] ^ mr_crc_tables[0][high >> 24];
    }
    for (; length; at++, length--) {
        crc = crc >> 8 ^ mr_crc_tables[0][(crc ^ *at) & 0xFF];
    }
    return ~crc;
}

static void mr_crc32c_make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? MR_CRC_POLYNOMIAL : 0);
        }
        mr_crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = mr_crc_tables[table - 1][byte];
            mr_crc_tables[table][byte] = crc >> 8 ^ mr_crc_tables[0][crc & 0xFF];
        }
    }
}

#if defined(__x86_64__)

#include <immintrin.h>

#define MR_TARGET __attribute__((target("sse4.2,pclmul")))

/* Below this one stream is faster than three and the join. */
#define MR_CRC_THREE_STREAMS_MIN 384
/* Bytes of one turn of three streams: stays in the first cache and its TLB. */
#define MR_CRC_TURN_BYTES (3 * 8192 + 8)

MR_TARGET static inline uint64_t mr_load64(const uint8_t *at) {
    uint64_t raw;
    memcpy(&raw, at, sizeof raw);
    return raw;
}

/* x^n mod P, reflected. */
MR_TARGET static uint32_t mr_crc_power(uint64_t n) {
    uint64_t stack = ~(uint64_t)1;
    for (; n > 191; n = (n >> 1) - 16) {
        stack = (stack << 1) + (n & 1);
    }
    stack = ~stack;
    uint32_t power = 0x80000000u >> (n & 31);
    for (n >>= 5; n; n--) {
        power = _mm_crc32_u32(power, 0);
    }
    for (;;) {
        uint32_t low = stack & 1;
        stack >>= 1;
        if (!stack) {
            return power;
        }
        __m128i wide = _mm_cvtsi32_si128((int)power);
        uint64_t square = (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(wide, wide, 0));
        power = (uint32_t)_mm_crc32_u64(0, square << low);
    }
}

/* What ``crc`` becomes over ``bytes`` (at least 8) zero bytes, still to be reduced over 64 bits. */
MR_TARGET static inline uint64_t mr_crc_shift(uint32_t crc, size_t bytes) {
    __m128i power = _mm_cvtsi32_si128((int)mr_crc_power(bytes * 8 - 33));
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), power, 0));
}

MR_TARGET static uint32_t mr_crc32c_sse42(uint32_t crc, const uint8_t *at, size_t length) {
    uint64_t first = ~crc;
    while (length >= MR_CRC_THREE_STREAMS_MIN) {
        size_t turn = length < MR_CRC_TURN_BYTES ? length : MR_CRC_TURN_BYTES;
        size_t stream = (turn - 8) / 24 * 8;
        uint64_t second = 0, third = 0;
        const uint8_t *end = at + stream;
        for (; at < end; at += 8) {
            first = _mm_crc32_u64(first, mr_load64(at));
            second = _mm_crc32_u64(second, mr_load64(at + stream));
            third = _mm_crc32_u64(third, mr_load64(at + 2 * stream));
        }
        at += 2 * stream;
        uint64_t joined = mr_crc_shift((uint32_t)first, 2 * stream + 8)
                          ^ mr_crc_shift((uint32_t)second, stream + 8);
        first = _mm_crc32_u64(third, mr_load64(at) ^ joined);
        at += 8;
        length -= 3 * stream + 8;
    }
    for (; length >= 8; at += 8, length -= 8) {
        first = _mm_crc32_u64(first, mr_load64(at));
    }
    uint32_t last = (uint32_t)first;
    for (; length; at++, length--) {
        last = _mm_crc32_u8(last, *at);
    }
    return ~last;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <arm_acle.h>
#include <sys/auxv.h>

#define MR_HWCAP_CRC32 (1ul << 7)

__attribute__((target("+crc")))
static uint32_t mr_crc32c_armv8(uint32_t crc, const uint8_t *at, size_t length) {
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        crc = __crc32cd(crc, mr_load_le64(at));
    }
    for (; length; at++, length--) {
        crc = __crc32cb(crc, *at);
    }
    return ~crc;
}

#endif

/* CRC of ``at[:length]``, continuing from ``crc``, the CRC of what came before. */
static uint32_t (*mr_crc32c)(uint32_t crc, const uint8_t *at, size_t length) = mr_crc32c_portable;

static void mr_crc32c_choose(void) {
    mr_crc32c_make_tables();
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        mr_crc32c = mr_crc32c_sse42;
    }
#elif defined(__aarch64__) && defined(__linux__)
    if (getauxval(AT_HWCAP) & MR_HWCAP_CRC32) {
        mr_crc32c = mr_crc32c_armv8;
    }
#endif
}

#endif
