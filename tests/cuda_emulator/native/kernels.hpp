// What the launcher must know of a kernel, found by the compiler from the kernel's type; and of a library of kernels.
#pragma once

// From here it knows where the library's shared variables are.
static thread_local char emulator_anchor;
extern "C" __attribute__((visibility("default"))) void* emulator_anchor_address() { return &emulator_anchor; }

namespace emulator {

// Layouts that `native.py` reads.
struct Parameter {
    int size;
    int kind;  // 'p'ointer, 'i'nteger, 'f'loating point, 'b'ool or 's'tructure
};

struct Kernel {
    void (*call)(void** arguments);
    const Parameter* parameters;
    int parameter_count;
    int most_threads;  // of __launch_bounds__, or 0
};

template <bool structure, class T> struct Kind;
template <class T> struct Kind<true, T> { static constexpr int value = 's'; };
template <class T> struct Kind<false, T> { static constexpr int value = T(1) / 2 != 0 ? 'f' : 'i'; };
template <class T> struct Kind<false, T*> { static constexpr int value = 'p'; };
template <> struct Kind<false, bool> { static constexpr int value = 'b'; };

template <class... T> struct Types {};
template <unsigned... I> struct Numbers {};
template <unsigned N, unsigned... I> struct Count : Count<N - 1, N - 1, I...> {};
template <unsigned... I> struct Count<0, I...> { using Up = Numbers<I...>; };

template <auto kernel, class... A, unsigned... I>
__attribute__((no_sanitize("thread", "alignment"))) inline void call_with(void** arguments, Types<A...>, Numbers<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
}

template <auto kernel, class T> struct Description;
template <auto kernel, class... A> struct Description<kernel, void (*)(A...)> {
    static constexpr Parameter parameters[sizeof...(A) + 1] = {
        {int(sizeof(A)), Kind<__is_class(A) || __is_union(A), A>::value}..., {0, 0}};
    __attribute__((no_sanitize("thread", "alignment"))) static void call(void** arguments) {
        call_with<kernel>(arguments, Types<A...>{}, typename Count<sizeof...(A)>::Up{});
    }
};

}  // namespace emulator

#define EMULATOR_KERNEL(symbol, kernel, most_threads)                                                              \
    extern "C" __attribute__((visibility("default"))) const emulator::Kernel symbol = {                            \
        emulator::Description<&kernel, decltype(&kernel)>::call,                                                   \
        emulator::Description<&kernel, decltype(&kernel)>::parameters,                                             \
        int(sizeof(emulator::Description<&kernel, decltype(&kernel)>::parameters) / sizeof(emulator::Parameter)) - 1, \
        most_threads};
