#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "sim/cli/outputs.h"
#include "sim/program/command_line.h"
#include "sim/program/forms.h"
#include "tests/sim/cli/invoke.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

std::string name_of(const CLI::Option& option) {
  return option.get_positional() ? option.get_single_name() : "--" + option.get_lnames().front();
}

// What the option library knows of one verb.
struct Verb {
  std::string name;
  std::vector<const CLI::Option*> options, positionals;
};

void add_options_of(const CLI::App& app, Verb* verb) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_lname("help")) continue;
    (option->get_positional() ? verb->positionals : verb->options).push_back(option);
  }
  for (const CLI::App* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_options_of(*group, verb);
}

void add_verbs(const CLI::App& app, const std::string& above, std::vector<Verb>* verbs) {
  for (const CLI::App* below : app.get_subcommands({})) {
    if (below->get_name().empty()) continue;
    const std::string name = above + (above.empty() ? "" : " ") + below->get_name();
    add_verbs(*below, name, verbs);
    if (!below->get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); })
             .empty())
      continue;
    verbs->push_back({name, {}, {}});
    add_options_of(*below, &verbs->back());
  }
}

// A value that the option takes, by what --help calls it.
std::string value_for(const std::string& text, const std::string& folder) {
  static const std::map<std::string, std::string> kValues = {
      {"N", "2"},
      {"S", "1"},
      {"SEED", "5"},
      {"D", "1"},
      {"R", "0"},
      {"X", "0.5"},
      {"US", "1"},
      {"MS", "1"},
      {"H", "1"},
      {"PORT", "29500"},
      {"I/N|auto", "1/1"},
      {"auto|N", "1"},
      {"DEVICE", "cpu"},
      {"SIZE", "8"},
      {"MIB,...|auto", "1"},
      {"N,...", "2"},
      {"KIND,...", "c10d"},
      {"'METRIC<=N'", "step_ms<=5"},
      {"/POINTER=VALUE", "/steps=1"},
      {"/POINTER=[VALUE,...]", "/steps=[1,2]"},
      {"FILE", folder + "/new"},
      {"FILE|FOLDER/", folder + "/new"},
      {"FOLDER", folder + "/new"},
      {"FILE|WORD", folder + "/new"},
      {"NAME", "none"}};
  if (const auto known = kValues.find(text); known != kValues.end()) return known->second;
  return text.substr(0, text.find('|'));
}

bool is_number(const std::string& text) {
  static const std::set<std::string> kNumbers = {"N",  "S",  "SEED", "D",    "R",      "X",
                                                 "US", "MS", "H",    "PORT", "auto|N", "I/N|auto"};
  return kNumbers.contains(text);
}

class Forms : public testing::Test {
 protected:
  Forms() : folder_(testing::TempDir() + "lockstep_forms_" + std::to_string(getpid())) {
    fs::create_directories(folder_ + "/recording");
    fs::create_directories(folder_ + "/empty");
    std::ofstream(folder_ + "/recording/recording.json") << "{}";
    std::ofstream(folder_ + "/file") << "{}";
    std::ofstream(folder_ + "/program.json") << R"({"program": {}})";
    build_command_line(app_, &action_);
    add_verbs(app_, "", &verbs_);
  }
  ~Forms() override { fs::remove_all(folder_); }

  // The verb, and something for each of its positionals.
  Words begin(const Verb& verb, Reads reads) const {
    Words words;
    std::istringstream names(verb.name);
    words.assign(std::istream_iterator<std::string>(names), {});
    for (const CLI::Option* one : verb.positionals) {
      const std::string text = one->get_option_text();
      const bool path = text.empty() || text.find("FILE") != std::string::npos ||
                        text.find("FOLDER") != std::string::npos;
      words.push_back(path ? path_for(reads) : value_for(text, folder_));
    }
    return words;
  }
  std::string path_for(Reads reads) const {
    if (reads == Reads::recordings) return folder_ + "/recording";
    if (reads == Reads::programs) return folder_ + "/program.json";
    return folder_ + (reads == Reads::files ? "/file" : "/empty");
  }
  // The option with a value, behind those that it needs.
  void give(const CLI::Option& option, Words* words, Words* given) const {
    for (const CLI::Option* needed : option.get_needs()) give(*needed, words, given);
    if (std::find(given->begin(), given->end(), name_of(option)) != given->end()) return;
    given->push_back(name_of(option));
    words->push_back(name_of(option));
    if (option.get_expected_max() > 0)
      words->back() += "=" + value_for(option.get_option_text(), folder_);
  }
  const CLI::Option* find(const Verb& verb, std::string_view name) const {
    for (const CLI::Option* option : verb.options)
      if (name_of(*option) == name) return option;
    return nullptr;
  }

  const std::string folder_;
  CLI::App app_{"", "lockstep"};
  std::function<int()> action_;
  std::vector<Verb> verbs_;
};

TEST_F(Forms, EveryOptionIsHonouredBySomeInvocationAndEveryHonouredOptionIsThere) {
  std::set<std::string> verbs;
  for (const Verb& verb : verbs_) {
    verbs.insert(verb.name);
    for (const CLI::Option* option : verb.options)
      EXPECT_THAT(forms_with(verb.name, name_of(*option)), Not(IsEmpty()))
          << verb.name << " " << name_of(*option);
  }
  for (const Form& form : all_forms()) {
    ASSERT_TRUE(verbs.contains(std::string(form.verb))) << form.verb;
    const auto verb = std::find_if(verbs_.begin(), verbs_.end(),
                                   [&](const Verb& one) { return one.name == form.verb; });
    for (const std::string_view option : form.options)
      EXPECT_NE(find(*verb, option), nullptr) << form.verb << " " << option;
    EXPECT_EQ(std::set(form.options.begin(), form.options.end()).size(), form.options.size());
    EXPECT_TRUE(form.mode.empty() || form.takes(form.mode)) << form.verb << " " << form.mode;
  }
}

TEST_F(Forms, OptionsWithoutAnEffectAreOptions) {
  for (const SilentOption& silent : silent_options()) {
    const bool known = std::any_of(all_forms().begin(), all_forms().end(), [&](const Form& form) {
      return form.takes(silent.option) && (silent.verb.empty() || silent.verb == form.verb);
    });
    EXPECT_TRUE(known) << silent.verb << " " << silent.option;
    EXPECT_FALSE(silent.why.empty());
  }
}

TEST_F(Forms, TheLastFormOfAVerbFitsWhateverItReads) {
  for (const Verb& verb : verbs_)
    for (const Reads reads : {Reads::folders, Reads::files, Reads::recordings})
      EXPECT_EQ(form_of(verb.name, {}, reads) == nullptr, verb.options.empty()) << verb.name;
}

TEST_F(Forms, WhatAnInvocationDoesNotHonourIsRefusedByNameAndNothingIsRun) {
  int refused = 0;
  for (const Verb& verb : verbs_)
    for (const Form& form : all_forms())
      for (const CLI::Option* option : verb.options) {
        if (form.verb != verb.name || form.takes(name_of(*option))) continue;
        Words words = begin(verb, form.reads), given;
        if (!form.mode.empty()) give(*find(verb, form.mode), &words, &given);
        give(*option, &words, &given);
        const Form* found = form_of(verb.name, given, reads_of(verb.name, {path_for(form.reads)}));
        if (std::all_of(given.begin(), given.end(),
                        [&](const std::string& one) { return found->takes(one); }))
          continue;  // the option makes it another form
        const Answer answer = invoke(words);
        EXPECT_EQ(answer.code, 2) << testing::PrintToString(words) << answer.err;
        EXPECT_TRUE(std::any_of(given.begin(), given.end(), [&](const std::string& one) {
          return answer.err.find(one) != std::string::npos;
        })) << testing::PrintToString(words);
        EXPECT_THAT(answer.out, IsEmpty());
        EXPECT_THAT(answer.err, AnyOf(HasSubstr("does not take it; expected"),
                                      HasSubstr("excludes"), HasSubstr("requires")));
        const bool tells_errors = std::any_of(given.begin(), given.end(), [](auto& one) {
          return one == "--json" || one == "--junit";
        });
        EXPECT_TRUE(tells_errors || !fs::exists(folder_ + "/new")) << testing::PrintToString(words);
        fs::remove_all(folder_ + "/new");
        ++refused;
      }
  EXPECT_GT(refused, 100);
}

TEST_F(Forms, ARecordingHasNoJUnitReport) {
  const Answer answer =
      invoke({"analyze", folder_ + "/recording", "--junit", folder_ + "/junit.xml"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(
      answer.err,
      HasSubstr("--junit: lockstep analyze of a recording does not take it; "
                "expected --color --html --json --metrics --trace --trace-kind; --junit is for "
                "lockstep analyze of kept runs"));
}

TEST_F(Forms, NumbersHaveARangeThatIsSaid) {
  for (const Verb& verb : verbs_)
    for (const CLI::Option* option : verb.options) {
      if (!is_number(option->get_option_text())) continue;
      for (const char* value : {"nan", "-1", "-0.5", "1e400", "many", "0x1", "7x"}) {
        Words words = begin(verb, Reads::folders), given;
        for (const CLI::Option* needed : option->get_needs()) give(*needed, &words, &given);
        words.push_back(name_of(*option) + "=" + value);
        const Answer answer = invoke(words);
        EXPECT_EQ(answer.code, 2) << testing::PrintToString(words);
        EXPECT_THAT(answer.err, HasSubstr(name_of(*option))) << testing::PrintToString(words);
        EXPECT_THAT(answer.err, HasSubstr("; expected ")) << testing::PrintToString(words);
      }
    }
}

TEST_F(Forms, NoValueIsEmptyAndNoFlagHasOne) {
  for (const Verb& verb : verbs_)
    for (const CLI::Option* option : verb.options) {
      Words words = begin(verb, Reads::folders), given;
      for (const CLI::Option* needed : option->get_needs()) give(*needed, &words, &given);
      const bool flag = option->get_expected_max() == 0;
      words.push_back(name_of(*option) + (flag ? "=false" : ""));
      if (!flag) words.emplace_back("");
      const Answer answer = invoke(words);
      EXPECT_EQ(answer.code, 2) << testing::PrintToString(words);
      EXPECT_THAT(answer.err, HasSubstr(name_of(*option))) << testing::PrintToString(words);
    }
}

TEST_F(Forms, FilesThatCannotBeWrittenAreRefusedFirst) {
  std::set<std::string> written;
  for (const Verb& verb : verbs_)
    for (const CLI::Option* option : verb.options) {
      if (path_use(*option) != PathUse::written) continue;
      written.insert(name_of(*option));
      if (verb.name == "worker") continue;  // rank 0 asks, once it is known
      for (const char* path : {"/proc/nope/x.svg", "-", "/proc"}) {
        if (name_of(*option) == "--trace" && path == std::string("/proc")) continue;  // or a folder
        Words words = begin(verb, Reads::folders);
        words.push_back(name_of(*option) + "=" + path);
        const Answer answer = invoke(words);
        EXPECT_EQ(answer.code, 2) << testing::PrintToString(words);
        EXPECT_THAT(answer.err, HasSubstr(name_of(*option) + " " + path));
        EXPECT_THAT(answer.out, IsEmpty());
      }
    }
  EXPECT_THAT(written,
              testing::ElementsAre("--csv", "--html", "--json", "--junit", "--markdown", "--out",
                                   "--save-weights", "--scenario", "--svg", "--trace"));
}

TEST_F(Forms, NoFileIsWrittenTwiceNorOverWhatIsRead) {
  for (const Verb& verb : verbs_) {
    std::vector<const CLI::Option*> outputs;
    for (const CLI::Option* option : verb.options)
      if (path_use(*option) == PathUse::written) outputs.push_back(option);
    for (size_t i = 0; i < outputs.size(); ++i) {
      Words words = begin(verb, Reads::folders);
      for (size_t j = 0; j < i; ++j) {
        Words both = words;
        both.push_back(name_of(*outputs[i]) + "=" + folder_ + "/empty/../twice");
        both.push_back(name_of(*outputs[j]) + "=" + folder_ + "/twice");
        const Answer answer = invoke(both);
        EXPECT_EQ(answer.code, 2) << testing::PrintToString(both);
        EXPECT_THAT(answer.err, HasSubstr("name the same path"));
        EXPECT_FALSE(fs::exists(folder_ + "/twice"));
      }
    }
  }
  const std::string file = folder_ + "/file";
  for (const Words& words :
       {Words{"verify", file, "--json", file},
        Words{"scenario", "check", file, "--jsn", "--json=" + file},
        Words{"analyze", file, "--json", folder_ + "/empty/../file"},
        Words{"compare", file, folder_ + "/recording", "--json=" + file, "--color", "red"}}) {
    EXPECT_EQ(invoke(words).code, 2) << testing::PrintToString(words);
    std::ifstream read(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(read), {}), "{}");
  }
}

TEST_F(Forms, TheDocumentIsTheTable) {
  if (tools().empty()) GTEST_SKIP() << "docs/options.md is of all tools";
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/options.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string made = testing::TempDir() + "options.md";
  if (text != forms_markdown()) std::ofstream(made) << forms_markdown();
  EXPECT_EQ(text, forms_markdown()) << "copy " << made << " to docs/options.md";
}

}  // namespace

}  // namespace lockstep
