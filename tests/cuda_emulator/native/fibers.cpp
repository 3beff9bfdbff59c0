// Runs a launch: block after block on this one processor thread, and in each block every thread as a fiber that gives
// way at barriers, shuffles and votes only.

#include "machine.hpp"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

// What kernels know as threadIdx and so on. They declare them constant, and for one thread they are.
extern "C" {
emulator::Index threadIdx, blockIdx, blockDim, gridDim;
}

namespace emulator {

Fiber* current = nullptr;
Fiber fibers[MOST_THREADS];
Block block;
const Launch* launch = nullptr;
Report report;

namespace {

constexpr std::size_t STACK = 128 << 10;  // with a page at its end that nobody may touch
constexpr std::size_t PAGE = 4096;

unsigned char* stacks = nullptr;
jmp_buf scheduler;
sigjmp_buf way_out;
ucontext_t entry_context, scheduler_context;
Fiber* entering;

[[noreturn]] void leave() { siglongjmp(way_out, 1); }

// A fiber's whole life: one thread of one block after the other.
void live() {
    Fiber& self = *entering;
    for (;;) {
        launch->call(launch->arguments);
        self.state = State::ended;
        thread_ended(self);
        wait();
    }
}

void make_stacks() {
    const std::size_t size = STACK * MOST_THREADS;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("cuda_emulator: no memory for the stacks of 1024 threads");
        std::abort();
    }
    stacks = static_cast<unsigned char*>(memory);
    for (unsigned i = 0; i < MOST_THREADS; i++) mprotect(stacks + i * STACK, PAGE, PROT_NONE);
}

void start(Fiber& fiber) {
    fiber.started = true;
    entering = &fiber;
    getcontext(&entry_context);
    entry_context.uc_stack.ss_sp = stacks + STACK * fiber.number + PAGE;
    entry_context.uc_stack.ss_size = STACK - PAGE;
    entry_context.uc_link = nullptr;
    makecontext(&entry_context, live, 0);
    swapcontext(&scheduler_context, &entry_context);
}

// setjmp and longjmp switch without a system call; only a fiber's first entry needs one.
void resume(Fiber& fiber) {
    current = &fiber;
    threadIdx = fiber.index;
    if (_setjmp(scheduler) == 0) {
        if (fiber.started) _longjmp(fiber.context, 1);
        start(fiber);
    }
}

void shuffle(std::vector<unsigned>& order, std::uint64_t& random) {
    for (std::size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[next_random(random) % i]);
}

void prepare_threads() {
    const unsigned* size = launch->block;
    block = Block{};
    block.threads = size[0] * size[1] * size[2];
    block.warps = (block.threads + WARP - 1) / WARP;
    for (unsigned i = 0; i < block.threads; i++) {
        Fiber& fiber = fibers[i];
        fiber.state = State::ready;
        fiber.number = i;
        fiber.lane = i % WARP;
        fiber.warp = i / WARP;
        fiber.index = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
        std::memset(fiber.heard, 0, sizeof fiber.heard);
    }
}

// Passes over the threads until all have ended. A pass in which nobody could run is a deadlock.
void run_block(std::vector<unsigned>& order, std::uint64_t& random) {
    prepare_threads();
    begin_block();
    shuffle(order, random);
    while (block.ended < block.threads) {
        bool progress = false;
        for (unsigned number : order) {
            if (fibers[number].state != State::ready) continue;
            progress = true;
            resume(fibers[number]);
        }
        if (!progress) report_deadlock();
    }
    end_block();
}

void run_blocks() {
    const unsigned* size = launch->grid;
    blockDim = {launch->block[0], launch->block[1], launch->block[2]};
    gridDim = {size[0], size[1], size[2]};
    std::uint64_t random = launch->seed;
    std::vector<unsigned> order(std::size_t(launch->block[0]) * launch->block[1] * launch->block[2]);
    std::iota(order.begin(), order.end(), 0u);
    std::vector<unsigned> blocks(std::size_t(size[0]) * size[1] * size[2]);
    std::iota(blocks.begin(), blocks.end(), 0u);
    shuffle(blocks, random);
    begin_launch();
    for (unsigned number : blocks) {
        blockIdx = {number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
        run_block(order, random);
    }
}

// Every load and store of a kernel is checked before it happens (accesses.cpp). This catches what is left: a stack
// that ran over, an address that a library function used.
// Where a module was compiled without words, undefined behaviour comes here too.
void on_signal(int number, siginfo_t* information, void*) {
    const bool is_undefined = number == SIGILL;
    std::snprintf(report.kind, sizeof report.kind, is_undefined ? "undefined" : "signal");
    if (is_undefined)
        std::snprintf(report.message, sizeof report.message,
                      "an overflow, a division by zero, a shift by too many bits, an access that is misaligned or by a "
                      "null pointer, or an index outside of an array (EMULATOR_WORDY=1 says which)");
    else
        std::snprintf(report.message, sizeof report.message, "%s at address %p (a stack that ran over, or a wild pointer)",
                      strsignal(number), information->si_addr);
    report.thread = threadIdx;
    report.block = blockIdx;
    report.place = is_undefined ? static_cast<char*>(information->si_addr) + 1 : nullptr;  // as where a call returns
    report.site = {nullptr, 0};
    leave();
}

class Signals {
public:
    Signals() {
        static unsigned char room[64 << 10];
        stack_t ours{};
        ours.ss_sp = room;
        ours.ss_size = sizeof room;
        sigaltstack(&ours, &stack_before);
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (int i = 0; i < COUNT; i++) sigaction(NUMBERS[i], &action, &before[i]);
    }
    ~Signals() {
        for (int i = 0; i < COUNT; i++) sigaction(NUMBERS[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }

private:
    static constexpr int COUNT = 4;
    static constexpr int NUMBERS[COUNT] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before[COUNT];
    stack_t stack_before;
};

}  // namespace

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
    std::uint64_t mixed = state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

void wait() {
    if (_setjmp(current->context) == 0) _longjmp(scheduler, 1);
}

bool on_a_stack(std::uintptr_t address) {
    return address - reinterpret_cast<std::uintptr_t>(stacks) < STACK * MOST_THREADS;
}

void fault(const char* kind, const void* place, Site site, const char* format, ...) {
    std::snprintf(report.kind, sizeof report.kind, "%s", kind);
    va_list values;
    va_start(values, format);
    std::vsnprintf(report.message, sizeof report.message, format, values);
    va_end(values);
    report.thread = current ? current->index : Index{};
    report.block = blockIdx;
    report.place = place;
    report.site = site;
    leave();
}

}  // namespace emulator

using namespace emulator;

// Runs a launch to its end (0) or to its first fault (1), which `emulator_report` then tells.
extern "C" int emulator_launch(const Launch* given) {
    if (stacks == nullptr) make_stacks();
    Signals signals;
    launch = given;
    int outcome = sigsetjmp(way_out, 1);
    if (outcome == 0) {
        run_blocks();
    } else {
        for (Fiber& fiber : fibers) fiber.started = false;
    }
    current = nullptr;
    return outcome;
}

extern "C" const Report* emulator_report() { return &report; }
