// Spectra of real numbers.
#pragma once

#include "packs.cuh"

namespace gradtape {

// Rows of a half spectrum of n real numbers; frequencies that are their own mirror image are real.
template <class T, class I>
DEVICE void write_spectrum(complex<T>* out, const complex<T>* x, I size, I frequencies, I n)
{
    for (I i = thread<I>(); i < size; i += threads<I>()) {
        const I k = i % frequencies;
        const complex<T> one = x[i];
        out[i] = {one.re, k == 0 || 2 * k == n ? T(0) : one.im};
    }
}

}  // namespace gradtape
