// What a warp's lanes touch together, on request: 32-byte sectors of device memory, passes over the banks of shared
// memory. Lanes do not run in step here. The n-th time that a lane comes to a place in the code is taken for the same
// instruction as the n-th time of the others.

#include "memory.hpp"

#include <algorithm>
#include <tuple>

namespace emulator {

namespace {

constexpr std::uintptr_t SECTOR = 32;
constexpr std::uintptr_t WORD = 4;
constexpr std::size_t BANKS = 32;
constexpr std::size_t PASS = BANKS * WORD;  // bytes of shared memory at once

struct Touch {
    unsigned thread;
    const void* place;
    std::uint64_t order;  // of the block's touches; later, of the thread's touches at this place
    Region* region;
    std::uintptr_t address;
    std::uint64_t size;
    bool writes;

    unsigned warp() const { return thread / WARP; }
};

std::vector<Touch> touches;

using Group = std::vector<Touch>::iterator;

void number_visits() {
    std::sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) {
        return std::tie(a.thread, a.place, a.order) < std::tie(b.thread, b.place, b.order);
    });
    std::uint64_t visit = 0;
    for (std::size_t i = 0; i < touches.size(); i++) {
        const bool same = i > 0 && touches[i].thread == touches[i - 1].thread && touches[i].place == touches[i - 1].place;
        visit = same ? visit + 1 : 0;
        touches[i].order = visit;
    }
}

std::tuple<unsigned, const void*, std::uint64_t> instruction_of(const Touch& touch) {
    return {touch.warp(), touch.place, touch.order};
}

std::size_t count_distinct(std::vector<std::uintptr_t>& numbers) {
    std::sort(numbers.begin(), numbers.end());
    return std::size_t(std::unique(numbers.begin(), numbers.end()) - numbers.begin());
}

std::uint64_t sectors_of(Group first, Group last) {
    std::vector<std::uintptr_t> sectors;
    for (Group touch = first; touch != last; touch++)
        for (auto sector = touch->address / SECTOR; sector <= (touch->address + touch->size - 1) / SECTOR; sector++)
            sectors.push_back(sector);
    return count_distinct(sectors);
}

// Lanes that want different words of one bank wait for each other.
std::uint64_t passes_of(Group first, Group last) {
    std::vector<std::uintptr_t> banks[BANKS];
    for (Group touch = first; touch != last; touch++)
        for (auto word = touch->address / WORD; word <= (touch->address + touch->size - 1) / WORD; word++)
            banks[word % BANKS].push_back(word);
    std::size_t most = 0;
    for (auto& words : banks) most = std::max(most, count_distinct(words));
    return most;
}

// Where lanes take 8 or 16 bytes each, the hardware serves a half or a quarter of the warp at a time.
std::uint64_t passes_in_parts(Group first, Group last) {
    const auto lanes = unsigned(std::max<std::uint64_t>(1, PASS / std::max<std::uint64_t>(first->size, WORD)));
    std::uint64_t passes = 0;
    while (first != last) {
        const unsigned part = first->thread % WARP / lanes;
        const Group end =
            std::find_if(first, last, [=](const Touch& touch) { return touch.thread % WARP / lanes != part; });
        passes += passes_of(first, end);
        first = end;
    }
    return passes;
}

void count_instruction(Group first, Group last) {
    Traffic& traffic = first->region->traffic;
    if (first->region->shared) {
        traffic.passes += passes_in_parts(first, last);
        traffic.instructions++;
    } else {
        (first->writes ? traffic.sectors_written : traffic.sectors_read) += sectors_of(first, last);
    }
}

}  // namespace

void note_touch(Region& region, std::uintptr_t address, std::uint64_t size, bool writes, const void* place) {
    touches.push_back({current->number, place, touches.size(), &region, address, size, writes});
}

void forget_touches() { touches.clear(); }

void count_touches() {
    number_visits();
    std::stable_sort(touches.begin(), touches.end(),
                     [](const Touch& a, const Touch& b) { return instruction_of(a) < instruction_of(b); });
    for (Group first = touches.begin(); first != touches.end();) {
        const Group last = std::find_if(first, touches.end(), [=](const Touch& touch) {
            return instruction_of(touch) != instruction_of(*first) || touch.region != first->region;
        });
        count_instruction(first, last);
        first = last;
    }
    touches.clear();
}

}  // namespace emulator
