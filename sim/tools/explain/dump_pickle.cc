#include "sim/tools/explain/dump_pickle.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPlainValues = 2'000'000;  // copies of shared tuples and texts included
constexpr size_t kMostPlainText = size_t{256} << 20;

struct BadPickle {
  std::string message;
};

struct PlainItem {
  Json value;
  int depth = 0;
  size_t values = 1;
  size_t bytes = 0;     // of texts
  int64_t shared = -1;  // by what it is remembered, where that is before it is filled
};

uint64_t number_at(std::string_view bytes, size_t at, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size && at + i < bytes.size(); ++i)
    number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}

// Bytes of an operation's argument; texts and long numbers follow their lengths.
struct ArgumentSize {
  uint8_t opcode;
  size_t size;
  bool is_length;
};
constexpr std::array kArgumentSizes = {
    ArgumentSize{'K', 1, false},  ArgumentSize{'M', 2, false}, ArgumentSize{'J', 4, false},
    ArgumentSize{0x8a, 1, true},  ArgumentSize{'G', 8, false}, ArgumentSize{'X', 4, true},
    ArgumentSize{0x8c, 1, true},  ArgumentSize{0x8d, 8, true}, ArgumentSize{0x80, 1, false},
    ArgumentSize{0x95, 8, false}, ArgumentSize{'q', 1, false}, ArgumentSize{'r', 4, false},
    ArgumentSize{'h', 1, false},  ArgumentSize{'j', 4, false}};

constexpr uint8_t kIsLength = 0x80;
constexpr std::array<uint8_t, 256> kSizesByOpcode = [] {
  std::array<uint8_t, 256> sizes{};
  for (const ArgumentSize& row : kArgumentSizes)
    sizes[row.opcode] = static_cast<uint8_t>(row.size | (row.is_length ? kIsLength : 0));
  return sizes;
}();

// What is recalled somewhere: only that has to be kept. Of what is no pickle, anything.
std::unordered_set<uint32_t> recalled(std::string_view bytes) {
  std::unordered_set<uint32_t> keys;
  for (size_t at = 0; at < bytes.size();) {
    const auto opcode = static_cast<uint8_t>(bytes[at++]);
    const uint8_t argument = kSizesByOpcode[opcode];
    if (argument == 0) continue;
    const size_t size = argument & 0x7FU;
    const bool recalls = opcode == 'h' || opcode == 'j', is_length = (argument & kIsLength) != 0;
    const uint64_t number = recalls || is_length ? number_at(bytes, at, size) : 0;
    if (recalls) keys.insert(static_cast<uint32_t>(number));
    at += size + (is_length ? std::min<uint64_t>(number, bytes.size()) : 0);
  }
  return keys;
}

class PlainUnpickler {
 public:
  explicit PlainUnpickler(std::string_view bytes) : bytes_(bytes), recalled_(recalled(bytes)) {}

  Json run() {
    while (step()) {
    }
    return std::move(result_);
  }
  size_t at() const { return opcode_at_; }

 private:
  bool step() {
    opcode_at_ = at_;
    const auto opcode = take<uint8_t>();
    if (opcode == '.') {
      result_ = pop().value;
      return false;
    }
    if (!leaf(opcode) && !container(opcode) && !memo(opcode))
      throw BadPickle{fmt::format("operation 0x{:02x}, which is not of plain values", opcode)};
    return true;
  }

  bool leaf(uint8_t opcode) {
    switch (opcode) {
      case 'N':
        push(nullptr);
        return true;
      case 0x88:
      case 0x89:
        push(opcode == 0x88);
        return true;
      case 'K':
        push(take<uint8_t>());
        return true;
      case 'M':
        push(take<uint16_t>());
        return true;
      case 'J':
        push(take<int32_t>());
        return true;
      case 0x8a:
        push(long_integer(take<uint8_t>()));
        return true;
      case 'G':
        push(number_json(std::bit_cast<double>(__builtin_bswap64(take<uint64_t>()))));
        return true;
      case 'X':
        push_text(take<uint32_t>());
        return true;
      case 0x8c:
        push_text(take<uint8_t>());
        return true;
      case 0x8d:
        push_text(take<uint64_t>());
        return true;
      default:
        return false;
    }
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case '}':
        push(Json::object());
        return true;
      case ']':
      case ')':
        push(Json::array());
        return true;
      case '(':
        marks_.push_back(stack_.size());
        if (marks_.size() > kMostPlainValues) throw BadPickle{"marks without an end"};
        return true;
      case 't':
        tuple(stack_.size() - pop_mark());
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        tuple(size_t{opcode} - 0x84);
        return true;
      case 'a':
        append(1);
        return true;
      case 'e':
        append(stack_.size() - pop_mark());
        return true;
      case 's':
        set_items(2);
        return true;
      case 'u':
        set_items(stack_.size() - pop_mark());
        return true;
      default:
        return false;
    }
  }

  bool memo(uint8_t opcode) {
    switch (opcode) {
      case 0x80:
        if (const int protocol = take<uint8_t>(); protocol < 2 || protocol > 5)
          throw BadPickle{fmt::format("pickle protocol {} (allowed: 2 to 5)", protocol)};
        return true;
      case 0x95:  // a frame
        (void)take<uint64_t>();
        return true;
      case 'q':
        remember(take<uint8_t>());
        return true;
      case 'r':
        remember(take<uint32_t>());
        return true;
      case 0x94:
        remember(static_cast<uint32_t>(memo_.size()));
        return true;
      case 'h':
        recall(take<uint8_t>());
        return true;
      case 'j':
        recall(take<uint32_t>());
        return true;
      default:
        return false;
    }
  }

  template <class T>
  T take() {
    T number;
    std::memcpy(&number, take_text(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view take_text(uint64_t size) {
    if (size > bytes_.size() - at_) throw BadPickle{"cut short"};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  int64_t long_integer(size_t size) {
    if (size > 8) throw BadPickle{"an integer of more than 64 bits"};
    const std::string_view digits = take_text(size);
    uint64_t bits = 0;
    for (size_t i = 0; i < size; ++i) bits |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
    if (size > 0 && size < 8 && (digits.back() & 0x80) != 0) bits |= ~uint64_t{0} << (8 * size);
    return static_cast<int64_t>(bits);
  }

  void push_item(PlainItem item) {
    if (++made_ > kMostPlainValues) throw BadPickle{"more values than lockstep reads"};
    stack_.push_back(std::move(item));
  }
  void push(Json value) { push_item({std::move(value)}); }
  void push_text(uint64_t size) {
    const std::string_view text = take_text(size);
    push_item({Json(std::string(text)), 0, 1, text.size()});
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(size_t count) const {
    if (stack_.size() < floor() || stack_.size() - floor() < count)
      throw BadPickle{"takes more than there is on the stack"};
  }
  PlainItem pop() {
    need(1);
    PlainItem item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }
  size_t pop_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) throw BadPickle{"a mark is missing"};
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  static void take_in(PlainItem* into, const PlainItem& part) {
    into->values += part.values;
    into->bytes += part.bytes;
    into->depth = std::max(into->depth, part.depth + 1);
    if (into->depth > kDeepestNesting) throw BadPickle{"nested deeper than lockstep reads"};
  }
  void tuple(size_t count) {
    need(count);
    PlainItem made{Json::array()};
    made.value.get_ref<Json::array_t&>().reserve(count);
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      keep_filled(stack_[i]);
      take_in(&made, stack_[i]);
      made.value.push_back(std::move(stack_[i].value));
    }
    stack_.resize(stack_.size() - count);
    push_item(std::move(made));
  }
  void append(size_t count) {
    need(count + 1);
    PlainItem& to = stack_[stack_.size() - count - 1];
    if (!to.value.is_array()) throw BadPickle{"items for what is no list"};
    if (to.value.empty()) to.value.get_ref<Json::array_t&>().reserve(count);
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      keep_filled(stack_[i]);
      take_in(&to, stack_[i]);
      to.value.push_back(std::move(stack_[i].value));
    }
    stack_.resize(stack_.size() - count);
  }
  void set_items(size_t count) {
    need(count + 1);
    PlainItem& to = stack_[stack_.size() - count - 1];
    if (!to.value.is_object() || count % 2 != 0) throw BadPickle{"items for what is no dictionary"};
    auto& members = to.value.get_ref<Json::object_t&>();
    if (members.empty()) members.reserve(count / 2);
    for (size_t i = stack_.size() - count; i < stack_.size(); i += 2) {
      keep_filled(stack_[i + 1]);
      take_in(&to, stack_[i + 1]);
      Json& key = stack_[i].value;
      if (!key.is_string() && !key.is_number_integer())
        throw BadPickle{"a key that is neither a text nor a whole number"};
      // Looked up nowhere here: a dictionary of n keys costs n.
      static_cast<Json::object_t::Container&>(members).emplace_back(
          key.is_string() ? std::move(key.get_ref<std::string&>()) : key.dump(),
          std::move(stack_[i + 1].value));
    }
    stack_.resize(stack_.size() - count);
  }

  // Dictionaries and lists are remembered before they are filled, by Python; one used again is a
  // copy of what is in it by then.
  void remember(uint32_t key) {
    need(1);
    PlainItem& item = stack_.back();
    const bool empty = item.value.is_structured() && item.value.empty();
    if (empty && recalled_.contains(key)) {
      item.shared = key;
      on_stack_[key] = stack_.size() - 1;
    }
    copied_bytes_ += item.bytes;
    made_ += item.values;
    if (made_ > kMostPlainValues || copied_bytes_ > kMostPlainText)
      throw BadPickle{"more values than lockstep reads"};
    memo_[key] = empty ? PlainItem{Json(nullptr), -1} : item;
  }
  // What goes into another list or dictionary is filled.
  void keep_filled(PlainItem& item) {
    if (item.shared < 0) return;
    const auto key = static_cast<uint32_t>(item.shared);
    item.shared = -1;
    on_stack_.erase(key);
    made_ += item.values;
    copied_bytes_ += item.bytes;
    if (made_ > kMostPlainValues || copied_bytes_ > kMostPlainText)
      throw BadPickle{"more values than lockstep reads"};
    memo_[key] = item;
  }
  void recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) throw BadPickle{fmt::format("nothing was remembered as {}", key)};
    const auto place = on_stack_.find(key);
    const bool open = place != on_stack_.end() && place->second < stack_.size() &&
                      stack_[place->second].shared == key;
    if (!open && found->second.depth < 0) throw BadPickle{"a list or dictionary that is gone"};
    PlainItem item = open ? stack_[place->second] : found->second;
    item.shared = -1;
    made_ += item.values;
    copied_bytes_ += item.bytes;
    if (copied_bytes_ > kMostPlainText) throw BadPickle{"more text than lockstep reads"};
    push_item(std::move(item));
  }

  std::string_view bytes_;
  const std::unordered_set<uint32_t> recalled_;
  size_t at_ = 0, opcode_at_ = 0, made_ = 0, copied_bytes_ = 0;
  std::vector<PlainItem> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, size_t> on_stack_;  // what is remembered before it was filled
  std::unordered_map<uint32_t, PlainItem> memo_ = std::unordered_map<uint32_t, PlainItem>(4096);
  Json result_;
};

}  // namespace

Expected<Json> read_plain_pickle(std::string_view bytes, const std::string& file) {
  PlainUnpickler machine(bytes);
  try {
    return machine.run();
  } catch (const BadPickle& bad) {
    return file_error(file, fmt::format("pickle, byte {}: {}", machine.at(), bad.message));
  }
}

}  // namespace lockstep
