#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/tools/explain/chakra_nodes.h"

namespace lockstep {
namespace {

constexpr const char* kAllowedMessages = "an execution trace of Chakra (.et)";
// Of et_def.proto.
constexpr uint64_t kNodeName = 2, kNodeType = 3, kNodeDuration = 7, kNodeAttribute = 10;
constexpr uint64_t kAttributeName = 1, kAttributeBool = 27;

// One field of a message; what is none ends the message as damaged.
struct ProtobufField {
  uint64_t number = 0, value = 0;  // the value of a number
  std::string_view bytes;          // of text or a message
};

class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }

  std::optional<uint64_t> number() {
    uint64_t value = 0;
    for (size_t at = 0; at < 10 && at < rest_.size(); ++at) {
      const auto byte = static_cast<uint8_t>(rest_[at]);
      value |= uint64_t{byte & 0x7FU} << (7 * at);
      if (byte >= 0x80) continue;
      rest_.remove_prefix(at + 1);
      return value;
    }
    return std::nullopt;
  }

  // Text or a message, behind its length.
  std::optional<std::string_view> bytes() {
    const auto length = number();
    if (!length || *length > rest_.size()) return std::nullopt;
    const std::string_view found = rest_.substr(0, static_cast<size_t>(*length));
    rest_.remove_prefix(found.size());
    return found;
  }

  std::optional<ProtobufField> field() {
    const auto key = number();
    if (!key || (*key >> 3) == 0) return std::nullopt;
    ProtobufField field;
    field.number = *key >> 3;
    switch (*key & 7) {
      case 0:
        if (const auto value = number())
          field.value = *value;
        else
          return std::nullopt;
        return field;
      case 1:
        return skip(8, field);
      case 2:
        if (const auto found = bytes())
          field.bytes = *found;
        else
          return std::nullopt;
        return field;
      case 5:
        return skip(4, field);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<ProtobufField> skip(size_t bytes, const ProtobufField& field) {
    if (rest_.size() < bytes) return std::nullopt;
    rest_.remove_prefix(bytes);
    return field;
  }

  std::string_view rest_;
};

// "is_cpu_op" is the only attribute that counts.
bool take_attribute(std::string_view bytes, ChakraNode* node) {
  std::string_view name;
  std::optional<bool> value;
  ProtobufFields wire(bytes);
  while (!wire.at_end()) {
    const auto field = wire.field();
    if (!field) return false;
    if (field->number == kAttributeName) name = field->bytes;
    if (field->number == kAttributeBool) value = field->value != 0;
  }
  // False is what a writer may leave out.
  if (name == "is_cpu_op") node->on_cpu = value.value_or(false);
  return true;
}

std::optional<ChakraNode> node_of(std::string_view bytes) {
  ChakraNode node;
  ProtobufFields wire(bytes);
  while (!wire.at_end()) {
    const auto field = wire.field();
    if (!field) return std::nullopt;
    if (field->number == kNodeName) node.name = std::string(field->bytes.substr(0, 200));
    if (field->number == kNodeType && field->value < 100)
      node.type = static_cast<int>(field->value);
    if (field->number == kNodeDuration && static_cast<double>(field->value) < kChakraLongest)
      node.micros = static_cast<double>(field->value);
    if (field->number == kNodeAttribute && !take_attribute(field->bytes, &node))
      return std::nullopt;
  }
  return node;
}

// "0.0.4", "1.0.2-chakra.0.0.4"
bool is_version(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789.";
  const size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  return end >= 3 && (end == text.size() || text.substr(end).starts_with("-chakra."));
}

}  // namespace

bool is_chakra_messages(std::string_view head) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  ProtobufFields metadata(head);
  const auto length = metadata.number();
  if (!length || *length < 5 || *length > uint64_t{1} << 20) return false;
  const auto field = metadata.field();
  if (!field || field->bytes.size() < 3 || field->bytes.size() > 200) return false;
  if (field->number == 1) return is_version(field->bytes);
  // A trace without its version has attributes first, which begin with their names.
  ProtobufFields attribute(field->bytes);
  const auto name = attribute.field();
  return field->number == 2 && name && name->number == kAttributeName && !name->bytes.empty() &&
         name->bytes.find_first_not_of(kLetters) == std::string_view::npos;
}

Expected<ChakraTrace> chakra_messages_of(std::string_view bytes, const std::string& path) {
  if (!is_chakra_messages(bytes))
    return file_error(path, "does not begin with GlobalMetadata", kAllowedMessages);
  ProtobufFields wire(bytes);
  (void)wire.bytes();
  ChakraNodes nodes;
  while (!wire.at_end()) {
    const size_t at = bytes.size() - wire.left();
    const auto message = wire.bytes();
    const auto node = message ? node_of(*message) : std::nullopt;
    if (!node)
      return file_error(path, fmt::format("no node at byte {}: cut short or damaged", at),
                        kAllowedMessages);
    nodes.add(*node);
  }
  return nodes.finish(path);
}

}  // namespace lockstep
