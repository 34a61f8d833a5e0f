#include "sim/weights/unpickler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/weights/pickle_calls.h"
#include "sim/weights/wrong_bytes.h"

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;
using Bytes = std::span<const std::byte>;

constexpr size_t kMostValues = kMostPickleValues;
constexpr size_t kMostBytes = size_t{256} << 20;

// The machine of pickletools.py: a stack, marks on it, and a memo.
class Unpickler {
 public:
  Unpickler(Bytes code, const StorageFiles& files) : code_(code), files_(files) {}

  Pickle run() {
    if (code_.size() > kMostBytes)
      throw WrongBytes(fmt::format("data.pkl has {} bytes", code_.size()), "at most 268435456");
    try {
      while (step()) {
      }
    } catch (const WrongBytes& wrong) {
      throw WrongBytes(fmt::format("data.pkl, byte {}: {}", opcode_at_, wrong.what()),
                       wrong.allowed());
    }
    return std::move(pickle_);
  }

 private:
  // One operation; false after the last one.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = take<uint8_t>();
    if (opcode == '.') {
      pickle_.root = pop();
      return false;
    }
    if (!simple(opcode) && !number(opcode) && !container(opcode) && !call(opcode))
      throw WrongBytes(fmt::format("operation 0x{:02x}, which torch.save does not write", opcode));
    return true;
  }

  bool simple(uint8_t opcode) {
    switch (opcode) {
      case 0x80:
        if (const int protocol = take<uint8_t>(); protocol != 2)
          throw WrongBytes(fmt::format("pickle protocol {}", protocol), "2, torch.save's default");
        return true;
      case '(':
        if (marks_.size() >= kMostValues) throw WrongBytes("marks without an end");
        marks_.push_back(stack_.size());
        return true;
      case 'q':
        remember(take<uint8_t>());
        return true;
      case '0':  // of objects that contain themselves
        (void)pop();
        return true;
      case '1':
        stack_.resize(pop_mark());
        return true;
      case 'r':
        remember(take<uint32_t>());
        return true;
      case 'h':
        stack_.push_back(remembered(take<uint8_t>()));
        return true;
      case 'j':
        stack_.push_back(remembered(take<uint32_t>()));
        return true;
      default:
        return false;
    }
  }

  bool number(uint8_t opcode) {
    switch (opcode) {
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
      case 0x89:
        push(Kind::boolean).integer = opcode == 0x88 ? 1 : 0;
        return true;
      case 'K':
        push(Kind::integer).integer = take<uint8_t>();
        return true;
      case 'M':
        push(Kind::integer).integer = take<uint16_t>();
        return true;
      case 'J':
        push(Kind::integer).integer = take<int32_t>();
        return true;
      case 0x8a:
        long_integer(take<uint8_t>());
        return true;
      case 'G':
        push(Kind::real).real = std::bit_cast<double>(__builtin_bswap64(take<uint64_t>()));
        return true;
      case 'X': {
        const std::string_view text = take_text(take<uint32_t>());
        push(Kind::text).text = text;
        return true;
      }
      default:
        return false;
    }
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case '}':
        push(Kind::dict);
        return true;
      case ']':
      case ')':
        push(Kind::list);
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
        append(1, Kind::list);
        return true;
      case 'e':
        append(stack_.size() - pop_mark(), Kind::list);
        return true;
      case 's':
        append(2, Kind::dict);
        return true;
      case 'u':
        append(stack_.size() - pop_mark(), Kind::dict);
        return true;
      default:
        return false;
    }
  }

  bool call(uint8_t opcode) {
    switch (opcode) {
      case 'c':
        global();
        return true;
      case 'Q':
        replace(storage_of(pickle_, value(pop()), files_));
        return true;
      case 'R':
      case 0x81: {
        const uint32_t arguments = pop();
        const uint32_t function = pop();
        result_of(function, arguments);
        return true;
      }
      case 'b': {  // attributes of an OrderedDict, such as _metadata, hold no tensors
        const uint32_t attributes = pop();
        PickleValue& object = value(top());
        if (object.kind == Kind::foreign)
          object.items.push_back(attributes);
        else if (object.kind != Kind::dict)
          throw WrongBytes("attributes of an object that is no dictionary");
        return true;
      }
      default:
        return false;
    }
  }

  void global() {
    const size_t begin = at_;
    const std::string_view module = take_line();
    const std::string_view name = take_line();
    const std::string_view both = chars(begin, module.size() + 1 + name.size());
    PickleValue& made = push(is_known_global(module, name) ? Kind::global : Kind::foreign);
    made.text = both;
    made.integer = static_cast<int64_t>(opcode_at_);
  }

  void result_of(uint32_t function, uint32_t arguments) {
    if (value(function).kind == Kind::foreign) {
      PickleValue made;
      made.kind = Kind::foreign;
      made.text = value(function).text;
      made.integer = value(function).integer;
      made.items = {function, arguments};
      replace(std::move(made));
      return;
    }
    if (value(function).kind != Kind::global || value(arguments).kind != Kind::list)
      throw WrongBytes("a call of what is no function");
    replace(called(&pickle_, value(function).text, value(arguments)));
  }

  void long_integer(size_t length) {
    const std::string_view digits = take_text(length);
    if (length > 8) {
      push(Kind::opaque);
      return;
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < length; ++i)
      bits |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
    if (length > 0 && length < 8 && (digits.back() & 0x80) != 0)
      bits |= ~uint64_t{0} << (8 * length);
    push(Kind::integer).integer = static_cast<int64_t>(bits);
  }

  void tuple(size_t count) {
    need(count);
    PickleValue made;
    made.kind = Kind::list;
    made.items.assign(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    replace(std::move(made));
  }

  void append(size_t count, Kind kind) {
    need(count + 1);
    PickleValue& to = value(stack_[stack_.size() - count - 1]);
    if ((to.kind != kind && to.kind != Kind::foreign) || (kind == Kind::dict && count % 2 != 0))
      throw WrongBytes("items for what is no container of such");
    to.items.insert(to.items.end(), stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
  }

  // Of the stack above the newest mark.
  void need(size_t count) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor || stack_.size() - floor < count)
      throw WrongBytes("takes more than there is on the stack");
  }
  size_t pop_mark() {
    if (marks_.empty()) throw WrongBytes("a mark is missing");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  uint32_t top() const {
    need(1);
    return stack_.back();
  }
  uint32_t pop() {
    const uint32_t index = top();
    stack_.pop_back();
    return index;
  }
  PickleValue& value(uint32_t index) { return pickle_.values[index]; }
  PickleValue& push(Kind kind) {
    PickleValue made;
    made.kind = kind;
    return replace(std::move(made));
  }
  PickleValue& replace(PickleValue made) {
    if (pickle_.values.size() >= kMostValues)
      throw WrongBytes("more values than lockstep reads", "at most 2097152");
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    return pickle_.values.emplace_back(std::move(made));
  }
  void remember(uint32_t key) {
    if (memo_.size() >= kMostValues) throw WrongBytes("more in its memo than lockstep reads");
    memo_[key] = top();
  }
  uint32_t remembered(uint32_t key) const {
    const auto found = memo_.find(key);
    if (found == memo_.end()) throw WrongBytes(fmt::format("nothing was remembered as {}", key));
    return found->second;
  }

  std::string_view chars(size_t at, size_t size) const {
    return {reinterpret_cast<const char*>(code_.data()) + at, size};
  }
  template <class T>
  T take() {
    T number;
    std::memcpy(&number, take_text(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view take_text(size_t size) {
    if (size > code_.size() - at_) throw WrongBytes("cut short");
    at_ += size;
    return chars(at_ - size, size);
  }
  std::string_view take_line() {
    constexpr size_t kMost = 200;
    const std::string_view rest = chars(at_, code_.size() - at_).substr(0, kMost);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) throw WrongBytes("a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  Bytes code_;
  const StorageFiles& files_;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, uint32_t> memo_;
  size_t at_ = 0, opcode_at_ = 0;
};

}  // namespace

std::string foreign_type(const PickleValue& value) {
  std::string name(value.text);
  std::replace(name.begin(), name.end(), '\n', '.');
  return name;
}

std::vector<bool> lead_to_tensors(const Pickle& pickle) {
  constexpr int kMostPasses = 64;
  std::vector<bool> leads(pickle.values.size());
  bool changed = true;
  for (int pass = 0; changed && pass < kMostPasses; ++pass) {
    changed = false;
    for (size_t i = 0; i < leads.size(); ++i) {
      if (leads[i]) continue;
      const PickleValue& value = pickle.values[i];
      leads[i] = value.kind == Kind::tensor || value.kind == Kind::storage ||
                 (value.kind == Kind::foreign && makes_a_tensor(value.text)) ||
                 std::any_of(value.items.begin(), value.items.end(),
                             [&](uint32_t item) { return leads[item]; });
      changed = changed || leads[i];
    }
  }
  if (changed) leads.assign(leads.size(), true);
  return leads;
}

Pickle unpickle(Bytes pickle, const std::map<std::string, Bytes>& files,
                const std::string& folder) {
  return Unpickler(pickle, StorageFiles{files, folder}).run();
}

}  // namespace lockstep
