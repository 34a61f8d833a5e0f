#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/analysis/pipeline_trace.h"
#include "tests/deflated.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json op(const char* name, int64_t tid) {
  return {{"name", name},
          {"ph", "X"},
          {"pid", 0},
          {"tid", tid},
          {"ts", 1.5},
          {"dur", 2.5},
          {"args", {{"step", 7}, {"seq_id", 0}, {"model_chunk", 0}}}};
}

Json trace() {
  const Json name = {{"name", "thread_name"},
                     {"ph", "M"},
                     {"pid", 0},
                     {"tid", 3},
                     {"args", {{"name", "PP rank 0, TP rank 0, compute"}}}};
  const Json other = {{"name", "process_name"}, {"ph", "M"}, {"pid", 0}};
  return Json::array({op("forward-compute", 3), op("backward-compute", 3), name, other});
}

// A file t.json in the working folder of its own.
class InFolder {
 public:
  InFolder() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
  }
  ~InFolder() { std::filesystem::current_path(before_); }

  Expected<PipelineTrace> read(const std::string& text) const {
    folder_.write("t.json", text);
    return read_pipeline_trace("t.json");
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path before_;
};

std::string why_not_read(const std::string& text) {
  const auto parsed = InFolder().read(text);
  return parsed ? "" : to_text(parsed.errors()[0]);
}

TEST(ReadTrace, OfAnArrayOfEvents) {
  const auto read = InFolder().read(trace().dump());
  ASSERT_TRUE(read) << to_text(read.errors()[0]);
  EXPECT_EQ(read.value().steps, 1);
  EXPECT_EQ(read.value().dp_ranks, 1);
  EXPECT_EQ(read.value().stages, 1);
  ASSERT_EQ(read.value().ops.size(), 2u);
  EXPECT_EQ(read.value().ops[1].kind, OpKind::backward_compute);
  EXPECT_EQ(read.value().ops[1].step, 7);
  EXPECT_DOUBLE_EQ(read.value().ops[1].duration_us, 2.5);
}

TEST(ReadTrace, EveryFieldIsAsked) {
  const std::pair<const char*, const char*> fields[] = {
      {"/0/ph", "is missing or no text"},
      {"/0/name", "is missing; expected \"params-all-gather\""},
      {"/0/pid", "is missing; expected an integer"},
      {"/0/tid", "is missing; expected an integer"},
      {"/0/ts", "is missing; expected a number"},
      {"/0/dur", "is missing; expected a number"},
      {"/0/args/step", "is missing; expected an integer"},
      {"/0/args/seq_id", "is missing; expected an integer"},
      {"/0/args/model_chunk", "is missing; expected an integer"},
      {"/2/args/name", "tells no stage; expected \"PP rank N, ...\""},
  };
  for (const auto& [pointer, why] : fields) {
    Json damaged = trace();
    const Json::json_pointer at(pointer);
    damaged[at.parent_pointer()].erase(at.back());
    EXPECT_THAT(why_not_read(damaged.dump()),
                StartsWith(std::string("t.json: error: ") + pointer + " " + why));
  }
}

TEST(ReadTrace, EveryValueIsChecked) {
  const auto with = [](const char* pointer, const Json& value) {
    Json damaged = trace();
    damaged[Json::json_pointer(pointer)] = value;
    return why_not_read(damaged.dump());
  };
  EXPECT_THAT(with("/0/name", "forward"), HasSubstr("/0/name is \"forward\"; expected \"params"));
  EXPECT_THAT(with("/0/pid", -1), HasSubstr("/0/pid is -1; expected an integer from 0 to"));
  EXPECT_THAT(with("/0/pid", 18446744073709551615u), HasSubstr("/0/pid is 18446744073709551615;"));
  EXPECT_THAT(with("/0/dur", -0.5), HasSubstr("/0/dur is -0.5; expected microseconds >= 0"));
  EXPECT_THAT(with("/0/dur", nullptr), HasSubstr("/0/dur is null; expected a number"));
  EXPECT_THAT(with("/0/args", 3), HasSubstr("/0/args/step is missing"));
  EXPECT_THAT(with("/0/args/step", 1.5), HasSubstr("/0/args/step is 1.5; expected an integer"));
  EXPECT_THAT(with("/0/args/model_chunk", 1), HasSubstr("interleaved stages cannot be replayed"));
  EXPECT_THAT(with("/0/tid", 9), HasSubstr("/0/tid is a thread without a thread_name event"));
  EXPECT_THAT(with("/2/args/name", "PP rank x"), HasSubstr("/2/args/name tells no stage"));
  EXPECT_THAT(with("/1", 5), HasSubstr("/1 is no object; expected a trace event"));
  EXPECT_THAT(with("/1", Json::array()), HasSubstr("/1 is no object; expected a trace event"));
}

TEST(ReadTrace, OtherTextIsRefused) {
  EXPECT_THAT(why_not_read(""), HasSubstr("t.json:1:1: error: the JSON document is cut off"));
  EXPECT_THAT(why_not_read("[{\"ph\": \"X\","), HasSubstr("the JSON document is cut off"));
  EXPECT_THAT(why_not_read("[\n  nonsense]"), HasSubstr("t.json:2:4: error: this is no JSON"));
  EXPECT_THAT(why_not_read("{}"), HasSubstr("it holds no array; expected trace events"));
  EXPECT_THAT(why_not_read("[]"), HasSubstr("there is no operation in it"));
  EXPECT_THAT(why_not_read("[1e999]"), HasSubstr("t.json: error: "));
}

class Files : public testing::Test {
 protected:
  Files() : path_(testing::TempDir() + "lockstep-trace-" + std::to_string(getpid())) {}
  ~Files() override { std::filesystem::remove(path_); }

  std::string why_not_read(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto read = read_pipeline_trace(path_);
    return read ? "" : to_text(read.errors()[0]);
  }
  static std::string packed() {
    std::ifstream file(LOCKSTEP_SOURCE_DIR "/golden/data/stragglers/timeline-ST.json.gz",
                       std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string path_;
};

TEST_F(Files, AsTheyAreOrPacked) {
  EXPECT_EQ(why_not_read(trace().dump()), "");
  EXPECT_EQ(why_not_read(packed()), "");
}

TEST_F(Files, CutOffOrDamagedAreRefused) {
  EXPECT_EQ(why_not_read(packed().substr(0, 5000)), path_ + ": error: the gzip file is cut off");
  std::string damaged = packed();
  damaged[70000] = static_cast<char>(damaged[70000] ^ 0x10);
  EXPECT_THAT(why_not_read(damaged), StartsWith(path_ + ": error: the gzip file is damaged"));
  EXPECT_THAT(why_not_read("PAR1"), HasSubstr(":1:1: error: this is no JSON"));
  const auto nowhere = read_pipeline_trace("/nowhere/trace.json");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(to_text(nowhere.errors()[0]),
            "/nowhere/trace.json: error: cannot be opened: No such file or directory");
}

TEST_F(Files, SpecialFilesAreRefused) {
  const auto why = [](const std::string& path) {
    const auto read = read_pipeline_trace(path);
    return read ? "" : to_text(read.errors()[0]);
  };
  EXPECT_EQ(why("/dev/zero"), "/dev/zero: error: this is a device; expected a regular file");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(why(path_), path_ + ": error: this is a pipe; expected a regular file");
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Small files that would fill the memory or the stack.
TEST_F(Files, DeepLongManyAndHugeAreRefused) {
  EXPECT_THAT(why_not_read(gzipped(std::string(20'000'000, '['))),
              HasSubstr("nested deeper than 100 levels"));
  EXPECT_THAT(why_not_read("[{\"ph\": " + repeated("{\"a\":", 80'000)),
              HasSubstr("nested deeper than 100 levels"));
  EXPECT_THAT(why_not_read(gzipped("[\"" + std::string(20'000'000, 'x') + "\"]")),
              HasSubstr("one value is longer than 1048576 bytes"));
  EXPECT_THAT(why_not_read("[{\"ph\": [" + repeated("0,", 20'000) + "0]}]"),
              HasSubstr("one event has more than 10000 values"));
  // What follows the end of the JSON is too much as well.
  EXPECT_THAT(why_not_read(gzipped("x" + std::string(80'000'000, ' '))),
              HasSubstr("it unpacks to more than 67108864 bytes"));
  EXPECT_THAT(why_not_read(gzipped(
                  "[" + repeated("{\"ph\": \"" + std::string(990, 'B') + "\"},\n", 80'000))),
              HasSubstr("it unpacks to more than 67108864 bytes"));
}

}  // namespace

}  // namespace lockstep
