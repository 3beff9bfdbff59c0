// Random words, and integrals of gamma distributions, as the op table defines them.
#pragma once

#include "functions.cuh"
#include "packs.cuh"

namespace gradtape {

// ---------------------------------------------------------------- Philox 4x32 with 10 rounds

// Block i of four words: the counter (i, `counter`) encrypted under the key.
DEVICE Pack<uint32, 4> philox(uint64 key, uint64 counter, uint64 block)
{
    uint32 c0 = uint32(block), c1 = uint32(block >> 32), c2 = uint32(counter), c3 = uint32(counter >> 32);
    uint32 k0 = uint32(key), k1 = uint32(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64 p0 = uint64(c0) * 0xd2511f53u, p1 = uint64(c2) * 0xcd9e8d57u;
        c0 = uint32(p1 >> 32) ^ c1 ^ k0;
        c2 = uint32(p0 >> 32) ^ c3 ^ k1;
        c1 = uint32(p1);
        c3 = uint32(p0);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {c0, c1, c2, c3};
}

template <class I>
DEVICE void fill_with_bits(uint32* out, const uint64* state, I size)
{
    const bool packs = is_aligned<4>(out);
    for (I block = thread<I>(); block < (size + 3) / 4; block += threads<I>()) {
        const Pack<uint32, 4> words = philox(state[0], state[1], uint64(block));
        if (packs && block * 4 + 4 <= size) {
            store(out, block * 4, words);
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (block * 4 + k < size)
                    out[block * 4 + k] = words[k];
        }
    }
}

// ---------------------------------------------------------------- moments of gamma distributions

// Where the exponent a s u - x (exp(s u) - 1) is -`reach` or a little less, with s = 1 where x > a and else -1.
DEVICE float64 end_of_moment(float64 a, float64 x, float64 reach)
{
    if (!(x > a)) {
        const float64 b = reach - 2 * (a - x);
        return (b + sqrt(b * b + 8 * a * reach)) / (2 * a);
    }
    const float64 gap = maximum(x - a, 0.0);
    float64 end = 2 * reach / (gap + sqrt(gap * gap + 2 * x * reach));
    end = log1p((reach + a * end) / x);
    return log1p((reach + a * end) / x);
}

// The integral of u^order exp(a s u - x (exp(s u) - 1)), by a rule of `count` nodes in [0, 1] and their weights.
DEVICE float64 moment(float64 a, float64 x, const float64* rule, int count, int order, float64 reach)
{
    const float64 end = end_of_moment(a, x, reach), side = x > a ? 1.0 : -1.0;
    float64 total = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
        const float64 u = end * rule[k], v = side * u;
        float64 integrand = exp(a * v - x * expm1(v));
        for (int j = 0; j < order; ++j)
            integrand *= u;
        total += integrand * rule[count + k];
    }
    return end * total;
}

template <class T, class I>
DEVICE void moments(T* out, const T* a, const T* x, const float64* rule, I size, int count, int order, float64 reach)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const float64 found = moment(float64(widen(a[i])), float64(widen(x[i])), rule, count, order, reach);
        if constexpr (sizeof(T) == 8)
            out[i] = found;
        else
            out[i] = stored<T>(float32(found));
    }
}

}  // namespace gradtape
