#include <gmock/gmock.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/sim/cli/invoke.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Cli, HelpOfEveryVerb) {
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{},
                                             {"verify"},
                                             {"scenario"},
                                             {"scenario", "explain"},
                                             {"schema"},
                                             {"profile"},
                                             {"analyze"},
                                             {"completion"},
                                             {"man"},
                                             {"doctor"}}) {
    std::vector<std::string> words = verb;
    words.push_back("--help");
    const Answer answer = invoke(words);
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.out, HasSubstr("Usage: lockstep"));
    EXPECT_THAT(answer.out, HasSubstr("Examples"));
    EXPECT_THAT(answer.out, HasSubstr("Exit codes"));
    // Others only print, check or write: they have no run that a signal could end.
    const std::string name = verb.empty() ? "" : verb.front();
    const bool runs = name.empty() || name == "verify" || name == "analyze";
    EXPECT_EQ(answer.out.find("128+n") != std::string::npos, runs) << name;
  }
}

TEST(Cli, UnknownWordsGetASuggestion) {
  EXPECT_EQ(invoke({"verfy"}).code, 2);
  EXPECT_THAT(invoke({"verfy"}).err, HasSubstr("unknown verb \"verfy\"; did you mean \"verify\"?"));
  const Answer answer = invoke({"verify", "x.json", "--jsn", "y"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("unknown option --jsn; did you mean \"--json\"?"));
  EXPECT_THAT(answer.err, HasSubstr("1 error; nothing was run; exit 2\n"));
}

TEST(Cli, OptionErrors) {
  EXPECT_EQ(invoke({}).code, 2);
  EXPECT_EQ(invoke({"verify"}).code, 2);
  EXPECT_EQ(invoke({"verify", "x.json", "--seed", "-1"}).code, 2);
  EXPECT_EQ(invoke({"verify", "x.json", "--seed", "many"}).code, 2);
  EXPECT_EQ(invoke({"verify", "x.json", "--color", "red"}).code, 2);
  EXPECT_EQ(invoke({"verify", "x.json", "-q", "-v"}).code, 2);
  EXPECT_EQ(invoke({"verify", "x.json", "--jobs", "0"}).code, 2);
  EXPECT_THAT(invoke({"verify", "x.json", "--shard", "3/2"}).err,
              HasSubstr("--shard \"3/2\" is no part of a whole; expected I/N"));
}

TEST(Cli, BadInputIsWrittenAsJsonToo) {
  const std::string path = testing::TempDir() + "lockstep_cli_" + std::to_string(getpid());
  EXPECT_EQ(invoke({"verify", "/no/such.json", "--json", path}).code, 2);
  std::ifstream file(path);
  const auto document = nlohmann::json::parse(file);
  EXPECT_EQ(document["exit_code"], 2);
  EXPECT_EQ(document["verdict"], nullptr);
  EXPECT_EQ(document["errors"].size(), 1u);
  std::filesystem::remove(path);
}

TEST(Cli, AnUnwritableJsonIsSaidBeforeAnythingRuns) {
  const Answer answer = invoke({"verify", "/no/such.json", "--json", "/proc/nope/x.json"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("--json /proc/nope/x.json: No such file or directory"));
}

TEST(Cli, SchemasAreJson) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"schema"}, {"schema", "--result"}}) {
    const Answer answer = invoke(words);
    EXPECT_EQ(answer.code, 0);
    EXPECT_TRUE(nlohmann::json::parse(answer.out).is_object());
  }
}

}  // namespace

}  // namespace lockstep
