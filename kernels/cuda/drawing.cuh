// Random words, numbers drawn by rejection, and integrals of gamma distributions, as the op table defines them.
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

// ---------------------------------------------------------------- integers

DEVICE uint32 word_of(uint64 key, uint64 counter, uint64 word)
{
    const Pack<uint32, 4> w = philox(key, counter, word / 4);
    const uint32 place = uint32(word) % 4;
    return place < 2 ? (place == 0 ? w.at[0] : w.at[1]) : (place == 2 ? w.at[2] : w.at[3]);
}

// Word i of `size` of 64 bits, the high halves of which are drawn first, then the low ones.
DEVICE uint64 wide_word(uint64 key, uint64 counter, uint64 i, uint64 size)
{
    return uint64(word_of(key, counter, i)) << 32 | word_of(key, counter, size + i);
}

// 64 bits that depend on a key and a number.
DEVICE uint64 mixed(uint64 key, uint64 number)
{
    const Pack<uint32, 4> w = philox(key, 0, number);
    return uint64(w.at[1]) << 32 | w.at[0];
}

// The key from which a draw makes those of its purposes and rounds.
DEVICE uint64 key_of(const uint64* state) { return mixed(mixed(0, state[0]), state[1]); }

// The states of generators, a counter (low half first) and a key each, some draws later, and the keys and counters of
// the draws at these states.
template <class I>
DEVICE void advance(int64* after, uint64* sources, const int64* states, uint64 by_low, uint64 by_high, I size)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const uint64 low = uint64(states[3 * i]), high = uint64(states[3 * i + 1]), key = uint64(states[3 * i + 2]);
        const uint64 sum = low + by_low;
        after[3 * i] = int64(sum);
        after[3 * i + 1] = int64(high + by_high + (sum < low ? 1 : 0));
        after[3 * i + 2] = int64(key);
        sources[2 * i] = mixed(mixed(0, key), high);
        sources[2 * i + 1] = low;
    }
}

// The keys for seeds of two numbers, a purpose and further numbers, each of these in a row for all seeds.
template <class I>
DEVICE void mix_seeds(uint64* sources, const int64* seeds, const int64* data, uint64 purpose, int32 count, I size)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        uint64 key = mixed(mixed(mixed(0, uint64(seeds[2 * i])), uint64(seeds[2 * i + 1])), purpose);
        for (int32 k = 0; k < count; ++k)
            key = mixed(key, uint64(data[I(k) * size + i]));
        sources[2 * i] = key;
        sources[2 * i + 1] = 0;
    }
}

// Integers from `low` on, `span` of them (0: all of 64 bits); words from `limit` on (0: none) are drawn again.
template <class T, class I>
DEVICE void fill_with_integers(T* out, const uint64* state, uint64 low, uint64 span, uint64 limit, I size)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        uint64 word = wide_word(state[0], state[1], uint64(i), uint64(size));
        for (uint64 again = 1; limit != 0 && word >= limit; ++again)
            word = wide_word(mixed(key_of(state), again), 0, uint64(i), uint64(size));
        out[i] = T((span == 0 ? word : word % span) + low);
    }
}

// ---------------------------------------------------------------- numbers drawn by rejection
// Each element has blocks of its own: one under the key of each purpose, and of each round.

struct Units {
    float64 u, v;
};

DEVICE float64 unit_of(uint32 high, uint32 low) { return high * 0x1p-32 + (low >> 11) * 0x1p-53; }

// Two uniform numbers in [0, 1).
DEVICE Units units(uint64 key, uint64 purpose, uint64 i)
{
    const Pack<uint32, 4> w = philox(mixed(key, purpose), 0, i);
    return {unit_of(w.at[0], w.at[1]), unit_of(w.at[2], w.at[3])};
}

DEVICE float64 gauss(uint64 key, uint64 purpose, uint64 i)
{
    const Units w = units(key, purpose, i);
    return sqrt(-2.0 * log(1.0 - w.u)) * ::cospi(2.0 * w.v);  // cos of any angle would need an array of its own
}

// A number of double precision as the dtype that is asked for, rounded once.
template <class T> DEVICE T drawn_as(float64 x) { return cast<T>(x); }
template <> DEVICE float16 drawn_as<float16>(float64 x) { return narrow<float16>(rounded_to_odd(x)); }
template <> DEVICE bfloat16 drawn_as<bfloat16>(float64 x) { return narrow<bfloat16>(rounded_to_odd(x)); }

template <class T, class I>
DEVICE void fill_with_truncated_normals(T* out, const uint64* state, I size)
{
    const uint64 key = key_of(state);
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        float64 z;
        uint64 round = 0;
        do
            z = gauss(key, round++, uint64(i));
        while (!(abs(z) <= 2.0));
        out[i] = drawn_as<T>(z);
    }
}

// By the method of Marsaglia and Tsang, for 0 < a < infinity.
DEVICE float64 gamma_number(float64 a, uint64 key, uint64 i)
{
    const float64 d = (a < 1 ? a + 1 : a) - 1 / 3.0, c = 1 / sqrt(9 * d);
    float64 x = 0;
    bool found = false;
    for (uint64 round = 0; !found; ++round) {
        const float64 z = gauss(key, 2 * round + 2, i), root = 1 + c * z;
        if (root > 0) {
            const float64 v = root * root * root;
            x = d * v;
            found = log(1 - units(key, 2 * round + 3, i).u) < 0.5 * z * z + d * (1 - v + log(v));
        }
    }
    return a < 1 ? exp(log(x) + log(1 - units(key, 0, i).u) / a) : x;
}

template <class T, class I>
DEVICE void fill_with_gamma_numbers(T* out, const uint64* state, const T* alpha, I size)
{
    const uint64 key = key_of(state);
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const float64 a = float64(widen(alpha[i]));
        const bool usable = a > 0 && is_finite(a);
        out[i] = drawn_as<T>(usable ? gamma_number(a, key, uint64(i)) : a >= 0 ? a : not_a_number<float64>());
    }
}

// The smallest k whose distribution function exceeds a uniform number, for 0 < rate < 10.
DEVICE float64 inverted_count(float64 rate, float64 u)
{
    float64 k = 0, term = exp(-rate), total = term;
    for (bool more = u >= total; more; more = u >= total && term > 1e-18) {
        k += 1;
        term *= rate / k;
        total += term;
    }
    return k;
}

// By Stirling's series from 10 on.
DEVICE float64 log_factorial(float64 k)
{
    if (k < 10) {
        float64 product = 1;
        for (float64 j = 2; j <= k; j += 1)
            product *= j;
        return log(product);
    }
    const float64 series = 1 / (12 * k) - 1 / (360 * k * k * k) + 1 / (1260 * k * k * k * k * k);
    return k * log(k) - k + 0.5 * log(6.283185307179586 * k) + series;
}

// By Hoermann's transformed rejection, for 10 <= rate < infinity.
DEVICE float64 rejected_count(float64 rate, uint64 key, uint64 i)
{
    const float64 b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    const float64 inverse = 1.1239 + 1.1328 / (b - 3.4), fast = 0.9277 - 3.6224 / (b - 2);
    for (uint64 round = 0;; ++round) {
        const Units w = units(key, round + 1, i);
        const float64 u = w.u - 0.5, v = w.v, near = 0.5 - abs(u);
        const float64 k = floor((2 * a / near + b) * u + rate + 0.43);
        if (near >= 0.07 && v <= fast)
            return k;
        if (k >= 0 && (near >= 0.013 || v <= near)
            && log(v * inverse / (a / (near * near) + b)) <= k * log(rate) - rate - log_factorial(k))
            return k;
    }
}

template <class T, class S, class I>
DEVICE void fill_with_counts(T* out, const uint64* state, const S* rates, I size)
{
    const uint64 key = key_of(state);
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const float64 rate = float64(widen(rates[i]));
        float64 found = rate == 0 ? 0.0 : not_a_number<float64>();
        if (rate > 0 && rate < 10)
            found = inverted_count(rate, units(key, 0, uint64(i)).u);
        else if (rate >= 10 && is_finite(rate))
            found = rejected_count(rate, key, uint64(i));
        out[i] = drawn_as<T>(found);
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
