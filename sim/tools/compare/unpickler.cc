#include "sim/tools/compare/unpickler.h"

#include <fmt/format.h>

#include <bit>
#include <set>

#include "sim/tools/compare/pickle_calls.h"
#include "sim/weights/tensor.h"

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;
using Bytes = std::span<const std::byte>;

constexpr size_t kMostValues = kMostPickleValues;
constexpr size_t kMostBytes = size_t{256} << 20;
constexpr size_t kMostClasses = size_t{1} << 16;  // of classes

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
    opcode_at_ = code_.at();
    const auto opcode = code_.take<uint8_t>();
    if (opcode == '.') {
      pickle_.root = pop();
      return false;
    }
    if (!simple(opcode) && !number(opcode) && !text(opcode) && !container(opcode) && !call(opcode))
      throw WrongBytes(fmt::format("operation 0x{:02x}, which torch.save does not write", opcode));
    return true;
  }

  bool simple(uint8_t opcode) {
    switch (opcode) {
      case 0x80:
        if (const int protocol = code_.take<uint8_t>(); protocol < 2 || protocol > 5)
          throw WrongBytes(fmt::format("pickle protocol {}", protocol), "2 to 5");
        return true;
      case 0x95:  // a frame says how much may be read at once, and nothing of what it means
        if (code_.take<uint64_t>() > code_.left()) throw WrongBytes("cut short");
        return true;
      case '(':
        if (marks_.size() >= kMostValues) throw WrongBytes("marks without an end");
        marks_.push_back(stack_.size());
        return true;
      case 'q':
        remember(code_.take<uint8_t>());
        return true;
      case '0':  // of objects that contain themselves
        (void)pop();
        return true;
      case '1':
        stack_.resize(pop_mark());
        return true;
      case 'r':
        remember(code_.take<uint32_t>());
        return true;
      case 0x94:
        remember(static_cast<uint32_t>(memo_.size()));
        return true;
      case 'h':
        stack_.push_back(remembered(code_.take<uint8_t>()));
        return true;
      case 'j':
        stack_.push_back(remembered(code_.take<uint32_t>()));
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
        push(Kind::integer).integer = code_.take<uint8_t>();
        return true;
      case 'M':
        push(Kind::integer).integer = code_.take<uint16_t>();
        return true;
      case 'J':
        push(Kind::integer).integer = code_.take<int32_t>();
        return true;
      case 0x8a:
        long_integer(code_.take<uint8_t>());
        return true;
      case 'G':
        push(Kind::real).real = std::bit_cast<double>(__builtin_bswap64(code_.take<uint64_t>()));
        return true;
      default:
        return false;
    }
  }

  bool text(uint8_t opcode) {
    switch (opcode) {
      case 0x8c:
        push_text(code_.take<uint8_t>());
        return true;
      case 'X':
        push_text(code_.take<uint32_t>());
        return true;
      case 0x8d:
        push_text(code_.take<uint64_t>());
        return true;
      case 'C':
        bytes(code_.take<uint8_t>());
        return true;
      case 'B':
        bytes(code_.take<uint32_t>());
        return true;
      case 0x8e:
      case 0x96:  // a bytearray
        bytes(code_.take<uint64_t>());
        return true;
      default:
        return false;
    }
  }

  void push_text(uint64_t size) {
    const std::string_view text = code_.take_text(size);
    push(Kind::text).text = text;
  }
  void bytes(uint64_t size) {
    (void)code_.take_text(size);
    push(Kind::opaque);
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
      case 0x8f:
        push(Kind::foreign).text = kSetName;
        return true;
      case 0x90:
        append(stack_.size() - pop_mark(), Kind::foreign);
        return true;
      case 0x91: {
        tuple(stack_.size() - pop_mark());
        PickleValue& made = value(top());
        made.kind = Kind::foreign;
        made.text = kFrozenSetName;
        return true;
      }
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
      case 0x93:
        global_on_stack();
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
      case 0x92: {
        const uint32_t named = pop();
        const uint32_t arguments = pop();
        const uint32_t function = pop();
        if (value(named).kind != Kind::dict) throw WrongBytes("named arguments without names");
        if (value(function).kind != Kind::foreign && !value(named).items.empty())
          throw WrongBytes("a call with named arguments, which torch.save does not make");
        result_of(function, arguments);
        if (value(function).kind == Kind::foreign) value(top()).items.push_back(named);
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
    const size_t begin = code_.at();
    const std::string_view module = code_.take_line();
    const std::string_view name = code_.take_line();
    push_global(module, name, code_.chars(begin, module.size() + 1 + name.size()));
  }

  // Module and name, each a text of its own: what was one name, told apart by a newline, stays so.
  void global_on_stack() {
    const uint32_t name = pop();
    const uint32_t module = pop();
    for (const uint32_t word : {module, name})
      if (value(word).kind != Kind::text || value(word).text.size() >= CodeReader::kMostName ||
          value(word).text.find('\n') != std::string_view::npos)
        throw WrongBytes("a name that is none");
    const std::string both = fmt::format("{}\n{}", value(module).text, value(name).text);
    const auto known = names_.find(both);
    if (known == names_.end() && names_.size() >= kMostClasses)
      throw WrongBytes("names of more classes than lockstep reads");
    const std::string_view text =
        known != names_.end() ? *known : *names_.insert(pickle_.names.emplace_back(both)).first;
    push_global(value(module).text, value(name).text, text);
  }

  void push_global(std::string_view module, std::string_view name, std::string_view both) {
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
    const std::string_view digits = code_.take_text(length);
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

  CodeReader code_;
  const StorageFiles& files_;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, uint32_t> memo_;
  std::set<std::string_view> names_;  // those of pickle_
  size_t opcode_at_ = 0;
};

}  // namespace

Pickle unpickle(Bytes pickle, const std::map<std::string, Bytes>& files,
                const std::string& folder) {
  return Unpickler(pickle, StorageFiles{files, folder}).run();
}

}  // namespace lockstep
