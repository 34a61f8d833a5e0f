#include "reducer/local/sum_ranges.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

using Program = std::vector<int64_t>;
constexpr int64_t kTile = 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// `first`, then `step` on, all ranks once around.
Program chain(int64_t world_size, int64_t first, int64_t step) {
  Program program;
  for (int64_t k = 0; k < world_size; ++k) {
    program.push_back(((first + k * step) % world_size + world_size) % world_size);
    if (k > 0) program.push_back(SumRange::kAdd);
  }
  return program;
}

void append(Program& program, const Program& more) {
  program.insert(program.end(), more.begin(), more.end());
}

Program balanced(int64_t first, int64_t ranks) {
  if (ranks == 1) return {first};
  Program program = balanced(first, ranks / 2);
  append(program, balanced(first + ranks / 2, ranks / 2));
  program.push_back(SumRange::kAdd);
  return program;
}

// Blocks of powers of two, the largest at rank 0, merged from the smallest upwards.
Program halving_doubling(int64_t world_size) {
  Program program;
  int64_t end = world_size;
  for (int64_t block = 1; end > 0; block *= 2) {
    if ((world_size & block) == 0) continue;
    end -= block;
    const bool is_first = program.empty();
    append(program, balanced(end, block));
    if (!is_first) program.push_back(SumRange::kAdd);
  }
  return program;
}

// Chunks of `chunk` elements, chunk c with the order program_of(c).
template <class ProgramOf>
std::vector<SumRange> chunked(int64_t count, int64_t chunk, ProgramOf&& program_of) {
  std::vector<SumRange> ranges;
  for (int64_t c = 0; c * chunk < count; ++c) {
    ranges.push_back({c * chunk, std::min(count, (c + 1) * chunk), program_of(c)});
  }
  return ranges;
}

int64_t ring_chunk(int64_t world_size, int64_t count, int64_t element_bytes) {
  constexpr int64_t kMaxSegmentBytes = 1 << 20;
  const int64_t total = count * element_bytes;
  const int64_t most = element_bytes * std::max<int64_t>(1, kMaxSegmentBytes / element_bytes);
  const int64_t segments = round_up(std::max(ceil_div(total, most), 2 * world_size), world_size);
  const int64_t segment = round_up(ceil_div(total, segments), element_bytes);
  return segments / world_size * segment / element_bytes;
}

// Groups of two while the world size is even, then one of the odd rest. In each step the members of
// a group split their range; each adds its peers' partial sums of its own part to its own.
class Bcube {
 public:
  Bcube(int64_t world_size, int64_t count) {
    int64_t distance = 1;
    for (; world_size % 2 == 0; world_size /= 2, distance *= 2) levels_.push_back({2, distance});
    if (world_size > 1) levels_.push_back({world_size, distance});
    split(0, 0, count, 0);
  }
  std::vector<SumRange> take() { return std::move(ranges_); }

 private:
  struct Level {
    int64_t size;
    int64_t distance;
  };

  void split(size_t level, int64_t begin, int64_t end, int64_t owner) {
    if (begin >= end) return;
    if (level == levels_.size()) {
      ranges_.push_back({begin, end, partial(level, owner)});
      return;
    }
    const auto [size, distance] = levels_[level];
    const int64_t part = ceil_div(end - begin, size);
    for (int64_t k = 0; k < size; ++k) {
      const int64_t from = std::min(end, begin + k * part);
      split(level + 1, from, std::min(end, from + part), owner + k * distance);
    }
  }

  // What `rank` holds of the range after the first `levels` steps.
  Program partial(size_t levels, int64_t rank) const {
    if (levels == 0) return {rank};
    const auto [size, distance] = levels_[levels - 1];
    const int64_t own = rank / distance % size;
    Program program = partial(levels - 1, rank);
    for (int64_t k = 0; k < size; ++k) {
      if (k == own) continue;
      append(program, partial(levels - 1, rank + (k - own) * distance));
      program.push_back(SumRange::kAdd);
    }
    return program;
  }

  std::vector<Level> levels_;
  std::vector<SumRange> ranges_;
};

size_t stack_depth(const Program& program) {
  size_t depth = 0, most = 0;
  for (int64_t step : program) {
    depth = step == SumRange::kAdd ? depth - 1 : depth + 1;
    most = std::max(most, depth);
  }
  return most;
}

// Runs a program on one tile; the result stands at the bottom of the stack.
template <class T>
void run_program(const Program& program, const std::vector<const T*>& ranks, int64_t at,
                 int64_t length, std::vector<T>& stack) {
  size_t top = 0;  // tiles in use
  for (size_t i = 0; i < program.size(); ++i) {
    T* const tile = stack.data() + top * kTile;
    if (program[i] == SumRange::kAdd) {
      T* const into = tile - 2 * kTile;
      for (int64_t e = 0; e < length; ++e) into[e] = into[e] + into[e + kTile];
      --top;
    } else if (top > 0 && i + 1 < program.size() && program[i + 1] == SumRange::kAdd) {
      const T* const from = ranks[static_cast<size_t>(program[i])] + at;
      T* const into = tile - kTile;
      for (int64_t e = 0; e < length; ++e) into[e] = into[e] + from[e];
      ++i;
    } else if (i + 2 < program.size() && program[i + 1] >= 0 && program[i + 2] == SumRange::kAdd) {
      const T* const left = ranks[static_cast<size_t>(program[i])] + at;
      const T* const right = ranks[static_cast<size_t>(program[i + 1])] + at;
      for (int64_t e = 0; e < length; ++e) tile[e] = left[e] + right[e];
      ++top;
      i += 2;
    } else {
      const T* const from = ranks[static_cast<size_t>(program[i])] + at;
      std::copy(from, from + length, tile);
      ++top;
    }
  }
}

}  // namespace

SumOrder sum_order(const std::string& algorithm) {
  if (algorithm == "ring") return SumOrder::ring;
  if (algorithm == "bcube") return SumOrder::bcube;
  if (algorithm == "halving_doubling") return SumOrder::halving_doubling;
  if (algorithm == "ring_chunked") return SumOrder::ring_chunked;
  LOCKSTEP_CHECK(algorithm == "rank_order", "unknown algorithm " + algorithm);
  return SumOrder::rank_order;
}

std::vector<SumRange> sum_ranges(SumOrder order, int64_t world_size, int64_t count,
                                 int64_t element_bytes) {
  if (count == 0) return {};
  if (world_size == 1) return {{0, count, {0}}};
  switch (order) {
    case SumOrder::ring:
      return chunked(count, ring_chunk(world_size, count, element_bytes),
                     [&](int64_t c) { return chain(world_size, c - 1, -1); });
    case SumOrder::bcube:
      return Bcube(world_size, count).take();
    case SumOrder::halving_doubling:
      return {{0, count, halving_doubling(world_size)}};
    case SumOrder::ring_chunked:
      return chunked(count, 2 * std::max<int64_t>(256, ceil_div(count, 2 * world_size)),
                     [&](int64_t c) { return chain(world_size, c, 1); });
    case SumOrder::rank_order:
      return {{0, count, chain(world_size, 0, 1)}};
  }
  LOCKSTEP_CHECK(false, "unknown SumOrder");
}

template <class T>
void sum_into(const std::vector<SumRange>& ranges, int64_t begin, int64_t end,
              const std::vector<const T*>& inputs, const std::vector<T*>& outputs) {
  std::vector<T> stack;
  for (const SumRange& range : ranges) {
    const int64_t last = std::min(end, range.end);
    int64_t at = std::max(begin, range.begin);
    if (at >= last) continue;
    stack.resize(std::max(stack.size(), stack_depth(range.program) * kTile));
    for (; at < last; at += kTile) {
      const int64_t length = std::min(kTile, last - at);
      run_program(range.program, inputs, at - begin, length, stack);
      for (T* output : outputs)
        std::copy(stack.data(), stack.data() + length, output + (at - begin));
    }
  }
}

#define LOCKSTEP_SUM_INTO(T)                                                \
  template void sum_into<T>(const std::vector<SumRange>&, int64_t, int64_t, \
                            const std::vector<const T*>&, const std::vector<T*>&);
LOCKSTEP_SUM_INTO(float)
LOCKSTEP_SUM_INTO(double)
LOCKSTEP_SUM_INTO(int32_t)
LOCKSTEP_SUM_INTO(int64_t)
LOCKSTEP_SUM_INTO(uint8_t)
LOCKSTEP_SUM_INTO(int8_t)
LOCKSTEP_SUM_INTO(c10::Half)
LOCKSTEP_SUM_INTO(c10::BFloat16)
#undef LOCKSTEP_SUM_INTO

}  // namespace lockstep
