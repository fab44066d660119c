"""The hash of rendezvous hashing: one worker's seed and a key, or a block of seeds.

Owns the one function that decides where every session of every user goes, in C, so
that a compiler makes vector instructions of it. Knows seeds and keys only.
"""

from libc.stdint cimport uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>

    #define ROUTER_BLOCK 64

    /* The multipliers are those of lowbias32 (Wellons 2018), with the upper half of
       the key added between them. Any change moves every session of every user. */
    static inline __attribute__((always_inline)) uint32_t
    router_hash(uint32_t seed, uint64_t key)
    {
        uint32_t x = (seed ^ (uint32_t)key) * 0x7FEB352DU;
        x = ((x ^ (x >> 15)) + (uint32_t)(key >> 32)) * 0x846CA68BU;
        return x ^ (x >> 16);
    }

    static inline __attribute__((always_inline)) uint32_t
    router_hash_block_body(
        const uint32_t *restrict seeds, uint64_t key, uint32_t *restrict hashes)
    {
        uint32_t highest = 0;
        for (int i = 0; i < ROUTER_BLOCK; i++) {
            uint32_t hash = router_hash(seeds[i], key);
            hashes[i] = hash;
            highest = hash > highest ? hash : highest;
        }
        return highest;
    }

    static uint32_t
    router_hash_block_plain(const uint32_t *seeds, uint64_t key, uint32_t *hashes)
    {
        return router_hash_block_body(seeds, key, hashes);
    }

    /* Plain x86-64 has no vector multiplication of 32 bits. The choice is made here
       and not by target_clones, which musl and macOS do not have. */
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("avx2"))) static uint32_t
    router_hash_block_avx2(const uint32_t *seeds, uint64_t key, uint32_t *hashes)
    {
        return router_hash_block_body(seeds, key, hashes);
    }
    #define router_hash_block(seeds, key, hashes) \\
        (__builtin_cpu_supports("avx2") \\
            ? router_hash_block_avx2(seeds, key, hashes) \\
            : router_hash_block_plain(seeds, key, hashes))
    #else
    #define router_hash_block router_hash_block_plain
    #endif
    """
    enum:
        BLOCK "ROUTER_BLOCK"

    # The 32-bit hash of a key for one worker's seed.
    uint32_t hash_one "router_hash" (uint32_t seed, uint64_t key) noexcept nogil

    # The same for BLOCK seeds, into hashes; the highest of them.
    uint32_t hash_block "router_hash_block" (
        const uint32_t *seeds, uint64_t key, uint32_t *hashes
    ) noexcept nogil
