#include "scenarios/version_range.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

bool in(const char* range, const char* version) {
  const auto parsed = VersionRange::parse(range);
  EXPECT_TRUE(parsed) << range;
  return parsed && parsed->contains(version);
}

TEST(VersionRange, ComparesNumbersNotText) {
  EXPECT_TRUE(in("<2.4", "1.13.1"));
  EXPECT_TRUE(in("<2.4", "2.3.9"));
  EXPECT_FALSE(in("<2.4", "2.14.1"));
  EXPECT_TRUE(in(">=2.4", "2.14.1"));
  EXPECT_TRUE(in(">=2.4", "2.4.0a0+git1234"));
  EXPECT_FALSE(in(">=2.4", "2.3.1"));
}

TEST(VersionRange, WhatABoundLeavesOutMatchesAny) {
  EXPECT_TRUE(in("1.13", "1.13.1"));
  EXPECT_TRUE(in("=2", "2.14.1"));
  EXPECT_FALSE(in("1.13", "1.1"));
  EXPECT_TRUE(in("<=2.4", "2.4.1"));
  EXPECT_FALSE(in(">2.4", "2.4.1"));
  EXPECT_FALSE(in("1.13.1", "1.13"));
}

TEST(VersionRange, AllBoundsMustHold) {
  EXPECT_TRUE(in(">=2.0 <2.4", "2.3.1"));
  EXPECT_FALSE(in(">=2.0 <2.4", "1.13.1"));
  EXPECT_FALSE(in(">=2.0  <2.4", "2.6.0"));
}

TEST(VersionRange, WordsAreLookedForBehindTheNumbers) {
  EXPECT_TRUE(in(">=2.8 +gloo", "2.15.0+gloo"));
  EXPECT_FALSE(in(">=2.8 +gloo", "2.15.0"));
  EXPECT_FALSE(in("+gloo <2.8", "2.15.0+gloo"));
  EXPECT_TRUE(in("+gloo", "2.7.1+cpu+gloo"));
  EXPECT_FALSE(VersionRange::parse("+"));
}

TEST(VersionRange, AnUnknownVersionIsInNone) {
  EXPECT_FALSE(in("<2.4", ""));
  EXPECT_FALSE(in(">=0", "unknown"));
}

TEST(VersionRange, OtherTextIsNoRange) {
  for (const char* text : {"", " ", "<", "2.", "2.x", "!=2", "< 2.4", "=<2", "-1", "2.4-2.6"})
    EXPECT_FALSE(VersionRange::parse(text)) << text;
}

}  // namespace
}  // namespace lockstep
