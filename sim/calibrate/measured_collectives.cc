#include "sim/calibrate/measured_collectives.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEither =
    "the output of nccl-tests' all_reduce_perf, or the result of lockstep collective --json of "
    "all_reduce, all_to_all, all_gather or reduce_scatter";

struct MeasuredSize {
  int64_t bytes = 0;
  double us = 0;
};

InputError at_line(const std::string& file, int64_t line, const std::string& message,
                   const std::string& allowed = "") {
  return {file, line, 0, "", message, allowed};
}

// Whoever measured twice has each size once, and whoever measured noise no size that is faster.
Expected<CostModel::Table> table_of(int64_t ranks, std::vector<MeasuredSize> sizes,
                                    const std::string& file,
                                    Operation operation = Operation::all_reduce) {
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(),
                             [](const MeasuredSize& size) { return size.bytes == 0; }),
              sizes.end());
  if (sizes.empty()) return file_error(file, "no size of it has a time", kEither);
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const MeasuredSize& a, const MeasuredSize& b) { return a.bytes < b.bytes; });
  std::vector<double> times;
  for (const MeasuredSize& size : sizes) times.push_back(size.us);
  times = isotonic(times);
  CostModel::Table table{ranks, {}, operation};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool again = i + 1 < sizes.size() && sizes[i + 1].bytes == sizes[i].bytes;
    if (!again) table.rows.push_back({sizes[i].bytes, std::llround(times[i] * 1e3)});
  }
  return table;
}

// ---- nccl-tests

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

// What its columns are called, of which versions have more or fewer: those out of place come first.
struct Columns {
  size_t count = 0, size = 0, elements = 0, type = 0, redop = 0, time = 0, wrong = 0;
  std::optional<size_t> root;
};

std::optional<size_t> place_of(const std::vector<std::string>& names,
                               const std::set<std::string>& wanted, bool last) {
  std::optional<size_t> place;
  for (size_t i = 0; i < names.size(); ++i)
    if (wanted.count(names[i]) > 0 && (last || !place)) place = i;
  return place;
}

// Of a line "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time ...".
std::optional<Columns> columns_of(std::vector<std::string> names) {
  if (names.size() < 2 || names[0] != "#" || names[1] != "size") return std::nullopt;
  names.erase(names.begin());
  const auto elements = place_of(names, {"count"}, false), type = place_of(names, {"type"}, false);
  const auto redop = place_of(names, {"redop"}, false), time = place_of(names, {"time"}, true);
  const auto wrong = place_of(names, {"#wrong", "error"}, true);
  if (!elements || !type || !redop || !time || !wrong) return std::nullopt;
  return Columns{names.size(), 0,     *elements, *type,
                 *redop,       *time, *wrong,    place_of(names, {"root"}, false)};
}

int64_t type_bytes(const std::string& type) {
  static const std::vector<std::pair<const char*, int64_t>> kTypes = {
      {"float", 4},    {"double", 8},   {"half", 2},   {"bfloat16", 2}, {"int32", 4}, {"int8", 1},
      {"uint8", 1},    {"uint32", 4},   {"int64", 8},  {"uint64", 8},   {"char", 1},  {"int", 4},
      {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"f8e4m3", 1}, {"f8e5m2", 1}};
  for (const auto& [name, bytes] : kTypes)
    if (type == name) return bytes;
  return 0;
}

class NcclTests {
 public:
  explicit NcclTests(std::string file) : file_(std::move(file)) {}

  // False: the line is wrong, and errors() says why.
  bool take(std::string_view line) {
    ++line_;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) return true;
    if (words[0] == "#") return take_comment(words);
    return !columns_ || words.size() < columns_->count || take_size(words);
  }

  Expected<CostModel::Table> table() {
    if (!error_.message.empty()) return error_;
    if (!columns_) return file_error(file_, "it is no list of measured collectives", kEither);
    if (ranks_.size() < 2) {
      return file_error(file_,
                        ranks_.empty() ? "it does not say of how many ranks it is: no \"Rank\" line"
                                       : "it is of one rank, which sends nothing",
                        "the whole output, or a machine file with these times in \"tables\"");
    }
    return table_of(static_cast<int64_t>(ranks_.size()), sizes_, file_);
  }

 private:
  bool refuse(const std::string& message, const std::string& allowed) {
    error_ = at_line(file_, line_, message, allowed);
    return false;
  }

  bool take_comment(const std::vector<std::string>& words) {
    if (words.size() > 2 && words[1] == "Rank") {
      if (const auto rank = number_in<int64_t>(words[2])) ranks_.insert(*rank);
    } else if (const auto columns = columns_of(words)) {
      columns_ = *columns;
    }
    return true;
  }

  bool take_size(const std::vector<std::string>& words) {
    const Columns& at = *columns_;
    const auto bytes = number_in<int64_t>(words[at.size]);
    const auto elements = number_in<int64_t>(words[at.elements]);
    if (!bytes || !elements) return true;  // a sentence between
    const auto us = number_in<double>(words[at.time]);
    if (!us || *us < 0 || *us > 1e15 || *bytes < 0 || *bytes > kMostBytes)
      return refuse(fmt::format("{} bytes in \"{}\" us", *bytes, shortened(words[at.time])),
                    fmt::format("up to {} bytes, up to 1e15 us", kMostBytes));
    if (!is_all_reduce(words, *bytes, *elements))
      return refuse(fmt::format("{} bytes of {} elements, {} of {}: not an all-reduce", *bytes,
                                *elements, shortened(words[at.redop]), shortened(words[at.type])),
                    "the output of all_reduce_perf");
    const std::string& wrong = words[at.wrong];
    if (const auto number = number_in<double>(wrong); number && *number > 0.1)
      return refuse(fmt::format("{} wrong results of {} bytes", shortened(wrong), *bytes),
                    "a measurement whose results are right");
    sizes_.push_back({*bytes, *us});
    return true;
  }

  // A reduce-scatter and an all-gather list the bytes of the whole and the elements of a part, a
  // broadcast adds nothing, a reduce has a root.
  bool is_all_reduce(const std::vector<std::string>& words, int64_t bytes, int64_t elements) const {
    const int64_t each = type_bytes(words[columns_->type]);
    if (elements < 0 || words[columns_->redop] == "none") return false;
    if (columns_->root && words[*columns_->root] != "-1") return false;
    return each == 0 || (elements <= kMostBytes / each && elements * each == bytes);
  }

  std::string file_;
  int64_t line_ = 0;
  std::set<int64_t> ranks_;
  std::optional<Columns> columns_;
  std::vector<MeasuredSize> sizes_;
  InputError error_;
};

Expected<CostModel::Table> from_nccl_tests(std::string_view text, const std::string& file) {
  NcclTests reader(file);
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (!reader.take(text.substr(at, end - at))) break;
    at = end + 1;
  }
  return reader.table();
}

// ---- lockstep collective --json

class Result {
 public:
  Result(const std::string& text_of, std::string file) : places_(file), file_(std::move(file)) {
    read_json(text_of, file_, &document_, &places_, &errors_);
  }

  Expected<CostModel::Table> table() {
    if (!errors_.empty()) return errors_;
    const Operation operation = operation_at("/collective/operation");
    const int64_t ranks = whole_number_at("/collective/world_size", 2, kMostRanks);
    if (number_at("/collective/wrong", 0, 1e18) > 0)
      refuse("/collective/wrong", "wrong results", "a measurement whose results are right");
    const size_t count = entries_at("/collective/communicators");
    if (count > 1)
      refuse("/collective/communicators", fmt::format("of {} communicators", count),
             "one (lockstep collective --communicators)");
    const size_t sizes = entries_at("/collective/communicators/0/sizes");
    std::vector<MeasuredSize> read;
    for (size_t i = 0; i < sizes && errors_.empty(); ++i) {
      const std::string size = fmt::format("/collective/communicators/0/sizes/{}", i);
      const int64_t bytes = whole_number_at(size + "/bytes", 0, kMostBytes);
      read.push_back({bytes, number_at(size + "/time_ns/median", 0, 1e18) * 1e-3});
    }
    if (!errors_.empty()) return errors_;
    return table_of(ranks, std::move(read), file_, operation);
  }

 private:
  void refuse(const std::string& pointer, const std::string& message, const std::string& allowed) {
    InputError error{file_, 0, 0, pointer, message, allowed};
    places_.locate(pointer, false, &error);
    errors_.push_back(std::move(error));
  }

  // Null, and an error, where there is none of this kind.
  const Json* find(const std::string& pointer, bool (*is)(const Json&), const char* allowed) {
    const Json::json_pointer place(pointer);
    const Json* found = document_.contains(place) ? &document_.at(place) : nullptr;
    if (found != nullptr && is(*found)) return found;
    refuse(pointer, found == nullptr ? "missing: " + pointer : "not of this kind", allowed);
    return nullptr;
  }
  std::string text_at(const std::string& pointer) {
    const Json* found = find(
        pointer, [](const Json& json) { return json.is_string(); }, "a text");
    return found == nullptr ? "" : found->get<std::string>();
  }
  Operation operation_at(const std::string& pointer) {
    const std::string word = text_at(pointer);
    for (const Operation operation : kMeasuredOperations)
      if (word == to_word(operation)) return operation;
    if (!word.empty())
      refuse(pointer, "of " + shortened(word),
             "all_reduce, all_to_all, all_gather or reduce_scatter");
    return Operation::all_reduce;
  }
  double number_at(const std::string& pointer, double least, double most) {
    const Json* found = find(
        pointer, [](const Json& json) { return json.is_number(); }, "a number");
    return in_range(pointer, found, least, most);
  }
  int64_t whole_number_at(const std::string& pointer, int64_t least, int64_t most) {
    const Json* found = find(
        pointer, [](const Json& json) { return json.is_number_integer(); }, "a whole number");
    return in_range(pointer, found, least, most);
  }
  template <class Number>
  Number in_range(const std::string& pointer, const Json* found, Number least, Number most) {
    const auto value = found == nullptr ? least : found->get<Number>();
    if (value >= least && value <= most) return value;
    refuse(pointer, fmt::format("{} is out of range", value), fmt::format("{} to {}", least, most));
    return least;
  }
  size_t entries_at(const std::string& pointer) {
    const Json* found = find(
        pointer, [](const Json& json) { return json.is_array() && !json.empty(); },
        "a list that is not empty");
    return found == nullptr ? 0 : found->size();
  }

  Places places_;
  const std::string file_;
  Json document_;
  InputErrors errors_;
};

}  // namespace

std::vector<double> isotonic(const std::vector<double>& values) {
  struct Block {
    double sum = 0;
    size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Block> blocks;
  for (const double value : values) {
    blocks.push_back({value, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() > blocks.back().mean()) {
      blocks[blocks.size() - 2].sum += blocks.back().sum;
      blocks[blocks.size() - 2].count += blocks.back().count;
      blocks.pop_back();
    }
  }
  std::vector<double> ascending;
  for (const Block& block : blocks) ascending.insert(ascending.end(), block.count, block.mean());
  return ascending;
}

Expected<CostModel::Table> measured_collectives_from(std::string_view text,
                                                     const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{')
    return Result(std::string(text), file).table();
  return from_nccl_tests(text, file);
}

Expected<CostModel::Table> read_measured_collectives(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  return measured_collectives_from(text.value(), printable(path));
}

}  // namespace lockstep
