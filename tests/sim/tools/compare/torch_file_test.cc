#include <map>

#include "tests/sim/tools/compare/made.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TorchFile : public testing::FolderTest {
 protected:
  // A file of torch.save with this data.pkl and 8 bytes in storage "0": two float32.
  static std::string with_pickle(const std::string& code) {
    return zip({{"archive/data.pkl", code}, {"archive/data/0", std::string(8, 'x')}});
  }
  // By the simplest of zip writers.
  static std::string zip(const std::vector<std::pair<std::string, std::string>>& entries,
                         uint16_t method = 0) {
    std::string out, directory;
    for (const auto& [name, data] : entries) {
      const size_t at = out.size();
      const auto fields = number<uint16_t>(20) + number<uint16_t>(0) + number(method) +
                          std::string(8, '\0') + number<uint32_t>(data.size()) +
                          number<uint32_t>(data.size()) + number<uint16_t>(name.size()) +
                          number<uint16_t>(0);
      out += "PK\x03\x04" + fields + name + data;
      directory += "PK\x01\x02" + number<uint16_t>(20) + fields + std::string(10, '\0') +
                   number<uint32_t>(at) + name;
    }
    const size_t begin = out.size();
    return out + directory + std::string("PK\x05\x06\0\0\0\0", 8) +
           number<uint16_t>(entries.size()) + number<uint16_t>(entries.size()) +
           number<uint32_t>(directory.size()) + number<uint32_t>(begin) + number<uint16_t>(0);
  }
  template <class T>
  static std::string number(size_t value) {
    const T narrow = static_cast<T>(value);
    return {reinterpret_cast<const char*>(&narrow), sizeof narrow};
  }
  static std::string number(uint16_t value) { return number<uint16_t>(value); }
  static std::string text(const std::string& value) {
    return "X" + number<uint32_t>(value.size()) + value;
  }
  // A tensor of storage "0" with these (shape, strides, offset) as code.
  static std::string tensor(const std::string& shape, const std::string& strides,
                            const std::string& offset = "K\x01",
                            const std::string& numel = "K\x02") {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" +
           text("0") + text("cpu") + numel + "tQ" + offset + shape + strides + "\x89" +
           "ccollections\nOrderedDict\n)RtR";
  }
};

const std::string kZero("K\0", 2), kBegin("\x80\x02");

TEST_F(TorchFile, WhatIsSavedIsRead) {
  testing::Tensors made;
  made.floats("state_dict/w", {2, 2}, {1, 2, 3, 4})
      .add<uint8_t>("state_dict/flag", Dtype::boolean, {1}, {1})
      .add<double>("other/d", Dtype::float64, {0, 3}, {})
      .floats("optimizer/state/0/exp_avg", {2, 2}, {5, 6, 7, 8})
      .floats("optimizer/state/1/exp_avg", {}, {9});
  const auto read = read_weights_file(write("a.pt", torch_bytes(made.all())));
  ASSERT_TRUE(read) << to_text(read.errors().front());
  EXPECT_EQ(read.value().format, "torch");
  EXPECT_THAT(testing::names_of(read.value()),
              ElementsAre("state_dict/w", "state_dict/flag", "other/d", "optimizer/state/0/exp_avg",
                          "optimizer/state/1/exp_avg"));
  EXPECT_THAT(testing::values_of<float>(read.value().tensors[3]), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(read.value().tensors[2].shape, ElementsAre(0, 3));
}

TEST_F(TorchFile, PyTorchsOwnFile) {
  const auto read =
      read_weights_file(LOCKSTEP_SOURCE_DIR "/tests/sim/tools/compare/data/pytorch.pt");
  ASSERT_TRUE(read) << to_text(read.errors().front());
  std::map<std::string, CheckpointTensor> tensors;
  for (const CheckpointTensor& tensor : read.value().tensors) tensors[tensor.name] = tensor;
  EXPECT_THAT(tensors.at("state_dict/weight").shape, ElementsAre(3, 2));
  EXPECT_THAT(tensors.at("optimizer/state/0/exp_avg").shape, ElementsAre(3, 2));
  EXPECT_EQ(testing::values_of<int64_t>(tensors.at("epoch")).front(), 3);
  EXPECT_EQ(testing::values_of<double>(tensors.at("optimizer/param_groups/0/lr")).front(), 1e-3);
  EXPECT_THAT(tensors.at("view").strides, ElementsAre(2));
  EXPECT_EQ(testing::values_of<int64_t>(tensors.at("view")).front(), 2);
  EXPECT_EQ(tensors.at("complex").dtype, Dtype::complex64);
  EXPECT_EQ(tensors.at("brain").dtype, Dtype::bfloat16);
  EXPECT_EQ(tensors.at("tied/a").first, tensors.at("tied/b").first);
  EXPECT_FALSE(tensors.contains("text"));
}

TEST_F(TorchFile, NothingIsExecuted) {
  for (const std::string& code :
       {std::string("cos\nsystem\n(") + text("touch /tmp/pwned") + "tR.",
        std::string("cposix\nsystem\n."), std::string("c__builtin__\neval\n(") + text("1") + "tR.",
        std::string("cbuiltins\nexec\n."), std::string("ctorch\nload\n."),
        std::string("cnumpy.core.multiarray\nscalar\n.")}) {
    const std::string error = error_of(with_pickle(kBegin + code));
    EXPECT_THAT(error, HasSubstr("executes nothing")) << code;
    EXPECT_THAT(error, HasSubstr("data.pkl, byte 2")) << code;
  }
  // Harmless names, called for what they are not called for.
  EXPECT_THAT(error_of(with_pickle(kBegin + "ctorch\nFloatStorage\n)R.")),
              HasSubstr("does not call"));
  EXPECT_THAT(error_of(with_pickle(kBegin + "})R.")), HasSubstr("no function"));
  for (const char* opcode : {"i", "o", "P1\n", "\x82", "F1.5\n", "2", "\x97", "\x98"})
    EXPECT_THAT(error_of(with_pickle(kBegin + opcode + "......")), HasSubstr("torch.save does not"))
        << opcode;
}

// What is in real checkpoints beside the model: skipped, with a note; nothing of it is called.
TEST_F(TorchFile, ForeignValuesAreSkipped) {
  const std::string model = text("model") + "}" + text("w") + tensor("(K\x01t", "(K\x01t") + "s";
  const std::vector<std::pair<std::string, std::string>> strangers = {
      {"argparse.Namespace", "cargparse\nNamespace\n)\x81}" + text("lr") + "K\x01sb"},
      {"collections.Counter", "ccollections\nCounter\n}" + text("x") + "K\x03s\x85R"},
      {"pathlib.PosixPath", "cpathlib\nPosixPath\n(" + text("/") + text("tmp") + "tR"},
      {"datetime.datetime",
       "cdatetime\ndatetime\n(c_codecs\nencode\n(" + text("x") + text("latin1") + "tRtR"},
      {"numpy.core.multiarray._reconstruct",
       "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + kZero + "\x85tR(K\x01tb"},
      {"__main__.Mode", "c__main__\nMode\n(K\x02tR"},
      {"__main__.List",
       "c__main__\nList\n)\x81(K\x01K\x02"
       "e"},
      {"__main__.Dict", "c__main__\nDict\n)R(" + text("a") + "K\x02u"},
      {"__main__.function", "c__main__\nfunction\n"},
      {"os.system", "cos\nsystem\n(" + text("touch /tmp/pwned") + "tR"},
      {"__main__.Loop", "c__main__\nLoop\n)\x81q\x07}" + text("me") + "h\x07sb"}};
  for (const auto& [type, code] : strangers) {
    const std::string path = write("a.pt", with_pickle(kBegin + "}(" + model + text("args") + code +
                                                       text("epoch") + "K\x05u."));
    const auto read = read_weights_file(path);
    ASSERT_TRUE(read) << type << " " << to_text(read.errors().front());
    EXPECT_THAT(testing::names_of(read.value()), ElementsAre("model/w", "epoch"));
    ASSERT_EQ(read.value().skipped.size(), 1u) << type;
    EXPECT_EQ(read.value().skipped[0].name, "args");
    EXPECT_EQ(read.value().skipped[0].type, type);
    EXPECT_FALSE(read.value().skipped[0].holds_tensors) << type;
    EXPECT_TRUE(below_key(read.value(), ""));
    const auto model_only = below_key(read.value(), "model");
    ASSERT_TRUE(model_only);
    EXPECT_TRUE(model_only.value().skipped.empty());
    EXPECT_FALSE(below_key(read.value(), "args"));
  }
}

// Protocol 4 and 5: names on the stack, frames, short texts, sets.
class Protocol4 : public TorchFile {
 protected:
  static std::string brief(const std::string& value) {
    return "\x8c" + number<uint8_t>(value.size()) + value;
  }
  static std::string name(const std::string& module, const std::string& global) {
    return brief(module) + brief(global) + "\x93";
  }
  static std::string tensor_of_4() {
    return name("torch._utils", "_rebuild_tensor_v2") + "((" + brief("storage") +
           name("torch", "FloatStorage") + brief("0") + brief("cpu") + "K\x02tQK\x01K\x01\x85" +
           "K\x01\x85\x89" + name("collections", "OrderedDict") + ")RtR";
  }
  static std::string framed(const std::string& code) {
    return "\x80\x04\x95" + number<uint64_t>(code.size()) + code;
  }
};

TEST_F(Protocol4, IsRead) {
  const std::string big("\x8d" + number<uint64_t>(3) + "big");
  const auto read = read_weights_file(write(
      "a.pt", with_pickle(framed("}\x94(" + brief("w") + "\x94" + tensor_of_4() + big + "K\x07" +
                                 brief("again") + "h" + number<uint8_t>(1) + "\x85" + "u."))));
  ASSERT_TRUE(read) << to_text(read.errors().front());
  EXPECT_THAT(testing::names_of(read.value()), ElementsAre("w", "big"));
  EXPECT_THAT(read.value().tensors[0].shape, ElementsAre(1));
  EXPECT_TRUE(read.value().skipped.empty());
}

TEST_F(Protocol4, ForeignValuesAreSkipped) {
  const std::vector<std::pair<std::string, std::string>> strangers = {
      {"os.system", name("os", "system") + brief("touch /tmp/pwned") + "\x85R"},
      {"__main__.Outer.Inner", name("__main__", "Outer.Inner") + ")}" + brief("x") + "K\x01s\x92"},
      {"builtins.set", "\x8f\x94(K\x01K\x02\x90"},
      {"builtins.set",
       "c__builtin__\nset\n](K\x01K\x02"
       "e\x85R"},
      {"builtins.frozenset", "(K\x01K\x02\x91"},
      {"builtins.frozenset", name("builtins", "frozenset") + "](K\x01"
                                                             "e\x85R"},
      {"builtins.eval", name("builtins", "eval") + brief("1") + "\x85R"}};
  for (const auto& [type, code] : strangers) {
    const auto read = read_weights_file(write(
        "a.pt", with_pickle(framed("}(" + brief("w") + tensor_of_4() + brief("x") + code + "u."))));
    ASSERT_TRUE(read) << type << " " << to_text(read.errors().front());
    EXPECT_THAT(testing::names_of(read.value()), ElementsAre("w"));
    ASSERT_EQ(read.value().skipped.size(), 1u) << type;
    EXPECT_EQ(read.value().skipped[0].type, type);
    EXPECT_FALSE(read.value().skipped[0].holds_tensors) << type;
    EXPECT_THAT(error_of(with_pickle(framed(code + "."))), HasSubstr("executes nothing")) << type;
  }
  for (const std::string& code :
       {"\x8f(" + tensor_of_4() + "\x90", "(" + tensor_of_4() + "\x91",
        name("__main__", "Net") + ")}" + brief("w") + tensor_of_4() + "s\x92",
        "c__builtin__\nset\n](" + tensor_of_4() + "e\x85R"}) {
    const auto read =
        read_weights_file(write("a.pt", with_pickle(framed("}" + brief("x") + code + "s."))));
    ASSERT_TRUE(read) << to_text(read.errors().front());
    ASSERT_EQ(read.value().skipped.size(), 1u);
    EXPECT_TRUE(read.value().skipped[0].holds_tensors);
  }
}

TEST_F(Protocol4, BytesAreNoNumbers) {
  for (const std::string& code :
       {"C" + number<uint8_t>(1) + "x", "B" + number<uint32_t>(1) + "x",
        "\x8e" + number<uint64_t>(1) + "x", "\x96" + number<uint64_t>(1) + "x"})
    EXPECT_EQ(error_of(with_pickle(framed("}" + brief("x") + code + "s."))), "");
}

TEST_F(Protocol4, WhatIsWrongIsRefused) {
  const std::string huge = number<uint64_t>(SIZE_MAX);
  for (const std::string& code :
       {std::string("\x93."), brief("os") + "K\x01\x93.", "K\x01" + brief("os") + "\x93.",
        brief("torch\nFloatStorage") + brief("x") + "\x93.",
        brief(std::string(200, 'x')) + brief("x") + "\x93.", std::string("\x94."),
        std::string("(\x90."), std::string("](K\x01\x90."), std::string("\x91."), "\x8d" + huge,
        "\x8e" + huge, "\x96" + huge, "B" + std::string(4, '\xff'), std::string("\x92."),
        name("collections", "OrderedDict") + ")]\x92.",
        name("collections", "OrderedDict") + ")}" + brief("x") + "K\x01s\x92."})
    EXPECT_THAT(error_of(with_pickle(framed(code))), HasSubstr("data.pkl, byte")) << code;
  EXPECT_THAT(error_of(with_pickle("\x80\x04\x95" + huge + "}.")), HasSubstr("cut short"));
}

TEST_F(Protocol4, NamesAreBounded) {
  std::string code;
  for (int i = 0; i < 70'000; ++i) code += name("m", std::to_string(i)) + "0";
  EXPECT_THAT(error_of(with_pickle(framed(code + "}."))), HasSubstr("names of more classes"));
  std::string one;
  for (int i = 0; i < 70'000; ++i) one += name("m", "x") + "0";
  EXPECT_EQ(error_of(with_pickle(framed(one + "}."))), "");
}

TEST_F(TorchFile, ForeignValuesWithTensorsAreNotSkippedWhereTheyAreAskedFor) {
  const std::string w = tensor("(K\x01t", "(K\x01t");
  const std::vector<std::string> strangers = {
      "c__main__\nNet\n)\x81}" + text("w") + w + "sb",
      "c__main__\nNet\n(" + w + "tR",
      "c__main__\nNet\n)\x81}" + text("deep") + "}" + text("er") + "](" + w + "essb",
      "ctorch._utils\n_rebuild_sparse_tensor\n(" + w + "tR",
      "ctorch._utils\n_rebuild_qtensor\n(K\x01tR",
      "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nQInt8Storage\n" +
          text("0") + text("cpu") +
          "K\x08tQK\x01(K\x01t(K\x01t\x89"
          "ccollections\nOrderedDict\n)RtR",
      "}c__main__\nKey\n)R" + w + "s"};
  for (const std::string& code : strangers) {
    const auto read = read_weights_file(
        write("a.pt", with_pickle(kBegin + "}(" + text("model") + "}" + text("w") + w + "s" +
                                  text("ema") + code + "u.")));
    ASSERT_TRUE(read) << code << to_text(read.errors().front());
    const auto all = below_key(read.value(), ""), ema = below_key(read.value(), "ema");
    ASSERT_FALSE(all) << code;
    EXPECT_THAT(all.errors().front().message, HasSubstr("holds tensors"));
    EXPECT_FALSE(ema);
    EXPECT_TRUE(below_key(read.value(), "model")) << code;
  }
}

TEST_F(TorchFile, StacksMarksAndMemos) {
  for (const std::string code :
       {".", "K\x01t.", "u.", "}u.", "](K\x01u.", "}(K\x01u.", "}(K\x01\x86", "q\x01.", "h\x05.",
        "j\x01", "K\x01K\x02s.", "N(\x85.", "R.", "Q.", "Nb.", "X\xff\xff\xff\xff", "\x8a\x09", "c",
        "ctorch"})
    EXPECT_THAT(error_of(with_pickle(kBegin + code)), HasSubstr("data.pkl, byte")) << code;
  for (const char protocol : {'\x01', '\x06'})
    EXPECT_THAT(error_of(with_pickle(std::string("\x80") + protocol + ".")),
                HasSubstr("pickle protocol"));
  EXPECT_THAT(error_of(with_pickle("")), HasSubstr("cut short"));
  EXPECT_EQ(error_of(with_pickle(kBegin + "}.")), "");
}

TEST_F(TorchFile, LoopsAndExplosionsOfNames) {
  EXPECT_THAT(error_of(with_pickle(kBegin + "]q\x01h\x01" + "a.")), HasSubstr("do not end"));
  // A list of two lists of two lists ...: 2^40 paths in 200 bytes.
  std::string code = kBegin + "K\x01q" + number<uint8_t>(0);
  for (int i = 0; i < 30; ++i)
    code += "h" + number<uint8_t>(i) + "h" + number<uint8_t>(i) + "\x86q" + number<uint8_t>(i + 1);
  EXPECT_THAT(error_of(with_pickle(code + ".")), HasSubstr("do not end"));
  EXPECT_THAT(error_of(with_pickle(kBegin + std::string(5'000'000, ']') + ".")),
              HasSubstr("more values"));
  EXPECT_THAT(error_of(with_pickle(kBegin + std::string(5'000'000, '(') + ".")),
              HasSubstr("marks without an end"));
}

TEST_F(TorchFile, TensorsStayInTheirStorage) {
  const auto error = [&](const std::string& code) {
    return error_of(with_pickle(kBegin + code + "."));
  };
  EXPECT_EQ(error(tensor("(K\x01t", "(K\x01t")), "");
  EXPECT_EQ(error(tensor("(K\x02t", "(K\x01t", kZero)), "");
  EXPECT_THAT(error(tensor("(K\x02t", "(K\x01t")), HasSubstr("leaves its storage"));
  EXPECT_THAT(error(tensor("(K\x02t", "(K\x02t", kZero)), HasSubstr("leaves its storage"));
  EXPECT_THAT(error(tensor("(K\x01t", "(K\x01t", "J\xff\xff\xff\xff")), HasSubstr("leaves"));
  EXPECT_THAT(error(tensor("(K\x02t", "(J\xff\xff\xff\xfft")), HasSubstr("leaves its storage"));
  EXPECT_THAT(error(tensor("(J\xff\xff\xff\x7f" + std::string("J\xff\xff\xff\x7ft"),
                           "(" + kZero + kZero + "t", kZero)),
              HasSubstr("leaves its storage"));
  // One number, 2^30 times.
  EXPECT_THAT(error(tensor("(J" + number<uint32_t>(1 << 30) + "t", "(" + kZero + "t", kZero)),
              HasSubstr("its tensors have more than"));
  EXPECT_THAT(error(tensor("(K\x01t", "(t")), HasSubstr("other numbers of sizes and strides"));
  EXPECT_THAT(error(tensor("(K\x01t", "(K\x01t", kZero, "K\x03")), HasSubstr("should have 3"));
  EXPECT_THAT(error(tensor("(K\x01t", "(K\x01t", kZero, "J\xff\xff\xff\xff")),
              HasSubstr("should have -1"));
  EXPECT_THAT(error(tensor("N", "N")), HasSubstr("a shape is missing"));
}

TEST_F(TorchFile, StoragesAreLookedUpAndNothingElse) {
  for (const std::string name : {"1", "../data.pkl", "/etc/passwd", ""}) {
    const std::string code = kBegin + "(" + text("storage") + "ctorch\nFloatStorage\n" +
                             text(name) + text("cpu") + "K\x02tQ.";
    EXPECT_THAT(error_of(with_pickle(code)), HasSubstr("is not in the file"));
  }
}

TEST_F(TorchFile, TwoValuesOfOneName) {
  const std::string one = text("a/b") + "K\x01" + text("a") + "}" + text("b") + "K\x02s";
  EXPECT_THAT(error_of(with_pickle(kBegin + "}(" + one + "u.")), HasSubstr("two values named a/b"));
}

TEST_F(TorchFile, Archives) {
  const std::string code = kBegin + "}.";
  EXPECT_EQ(error_of(zip({{"x/data.pkl", code}})), "");
  EXPECT_THAT(error_of(zip({{"x/data.pkl", code}}, 8)), HasSubstr("is compressed"));
  EXPECT_THAT(error_of(zip({{"x/data.pkl", code}, {"x/data.pkl", code}})),
              HasSubstr("two entries named"));
  EXPECT_THAT(error_of(zip({{"x/data.pkl", code}, {"y/data.pkl", code}})), HasSubstr("2 entries"));
  EXPECT_THAT(error_of(zip({{"data.pkl", code}})), HasSubstr("0 entries"));
  EXPECT_THAT(error_of(zip({{"x/data.pkl", code}, {"x/constants.pkl", code}})),
              HasSubstr("TorchScript"));
  EXPECT_THAT(error_of(zip({{"x/data.pkl", code}, {"x/byteorder", "big"}})),
              HasSubstr("byte order"));
  const std::string whole = zip({{"x/data.pkl", code}});
  for (size_t size = 4; size < whole.size(); ++size)
    EXPECT_NE(error_of(whole.substr(0, size)), "") << size;
  EXPECT_THAT(
      error_of(std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15)),
      HasSubstr("before PyTorch 1.6"));
}

TEST_F(TorchFile, EntriesThatOverlap) {
  std::string bytes = zip({{"x/data.pkl", kBegin + "}."}, {"x/data/0", "12345678"}});
  // The first entry's size, in the directory, so that it holds the second as well.
  const size_t directory = bytes.find("PK\x01\x02");
  bytes[directory + 20] = bytes[directory + 24] = 60;
  EXPECT_THAT(error_of(bytes), HasSubstr("overlap"));
}

}  // namespace

}  // namespace lockstep
