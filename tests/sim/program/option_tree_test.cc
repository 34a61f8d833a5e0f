#include <gmock/gmock.h>

#include "sim/program/option_tree.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

OptionWords option(const std::string& value) { return {{"--x"}, value, "", "", false}; }

TEST(OptionTree, ChoicesAreWordsBetweenBars) {
  EXPECT_THAT(option("auto|always|never").choices(), ElementsAre("auto", "always", "never"));
  EXPECT_THAT(option("FILE|FOLDER/").choices(), IsEmpty());
  EXPECT_THAT(option("auto|N").choices(), IsEmpty());
  EXPECT_THAT(option("N").choices(), IsEmpty());
  EXPECT_TRUE(option("FILE|FOLDER/").takes_path());
  EXPECT_FALSE(option("N").takes_path());
  EXPECT_TRUE(option("").is_flag());
}

class Made : public testing::Test {
 protected:
  Made() {
    app_.add_subcommand("run", "It's [a: \\ test].")
        ->add_option("--to", text_, "Where")
        ->option_text("FILE");
    CLI::App* group = app_.add_subcommand("scenario", "Look.");
    auto* check = group->add_subcommand("check", "Check.");
    check->add_option("FILE", text_, "Files");
    check->add_flag("-q,--quiet", flag_, ".begins with a dot");
    check->add_option_group("more")->add_flag("--more", flag_, "More");
  }
  CLI::App app_{"A test.", "lockstep"};
  std::string text_;
  bool flag_ = false;
};

TEST_F(Made, TheTreeHoldsVerbsBelowVerbsAndGroupsOfOptions) {
  const VerbWords root = words_of(app_);
  std::vector<std::string> names;
  for (const VerbWords* verb : all_verbs(root)) names.push_back(verb->name);
  EXPECT_THAT(names, ElementsAre("", "run", "scenario", "scenario check"));
  std::vector<std::string> options;
  for (const OptionWords& one : root.verbs[1].verbs[0].options)
    options.insert(options.end(), one.names.begin(), one.names.end());
  EXPECT_THAT(options, ElementsAre("-h", "--help", "FILE", "-q", "--quiet", "--more"));
}

TEST_F(Made, EachShellGetsItsOwnQuoting) {
  const VerbWords root = words_of(app_);
  EXPECT_THAT(zsh_completion(root), HasSubstr("'run:It'\\''s \\[a\\: \\\\ test\\].'"));
  EXPECT_THAT(fish_completion(root), HasSubstr("-a run -d 'It\\'s [a: \\\\ test].'"));
  EXPECT_THAT(fish_completion(root), HasSubstr("-s q -l quiet -d "));
  EXPECT_THAT(bash_completion(root), HasSubstr("'run:--to') _lockstep_paths; return ;;"));
}

TEST_F(Made, NothingInAManPageIsTakenForAMacro) {
  const std::string page = man_page(words_of(app_), "0.1.0");
  EXPECT_THAT(page, HasSubstr(".TH LOCKSTEP 1 \"\" \"lockstep 0.1.0\""));
  EXPECT_THAT(page, HasSubstr("\n\\&.begins with a dot\n"));
  EXPECT_THAT(page, HasSubstr("It's [a: \\e test]."));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-to\\fR \\fIFILE\\fR"));
}

}  // namespace

}  // namespace lockstep
