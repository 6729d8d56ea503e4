// Word-level distillation as its users meet it: train --teacher, its resumption, plan --teacher.
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class TeacherCli : public Cli {
 protected:
  static Arguments student(const std::string& run, const std::string& after,
                           const std::string& flags) {
    return small(run, after) + words_of(flags);
  }
  // A copy of the trained run, to be moved and changed.
  static std::string teacher_run(const std::string& name) {
    copy_of_run(name);
    return name;
  }
};

TEST_F(TeacherCli, AStudentTakesTheVocabularyOfItsTeacherAndResumesWithIt) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const std::string teacher = teacher_run("teacher");
  const Outcome made = run(
      student("student", "10u", "--teacher teacher --teacher-weight 0.7 --teacher-temperature 2"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.err.find("teacher: teacher/ckpt/"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find("weight 0.7, temperature 2"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find(", teacher "), std::string::npos) << made.err;  // of the plan
  EXPECT_EQ(read_file(file("student/vocab.spm")), read_file(file("teacher/vocab.spm")));
  const std::string config = read_file(file("student/config.yml"));
  EXPECT_NE(config.find("teacher: "), std::string::npos) << config;
  EXPECT_NE(config.find("teacher-weight: 0.7"), std::string::npos) << config;
  EXPECT_NE(config.find("teacher-temperature: 2"), std::string::npos) << config;

  // Uncut and continued runs end with the same model.
  const Outcome uncut = run(
      student("uncut", "20u", "--teacher teacher --teacher-weight 0.7 --teacher-temperature 2"));
  ASSERT_EQ(uncut.exit_code, 0) << uncut.err;
  const Outcome more = run(small("student", "20u"));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("resuming student at update 10"), std::string::npos) << more.err;
  EXPECT_EQ(read_file(file("student/ckpt/20/model.safetensors")),
            read_file(file("uncut/ckpt/20/model.safetensors")));

  // Without its teacher, or with another, it does not go on, and nothing is lost.
  const std::string before = read_file(file("student/ckpt/20/state.json"));
  expect_refused(run(student("student", "25u", "--teacher uncut")), "with another teacher");
  expect_refused(run(student("student", "25u", "--teacher-weight 0.1")),
                 "--teacher-weight was 0.7");
  fs::rename(file(teacher), file("moved"));
  expect_refused(run(small("student", "25u")), "teacher: no such file or directory");
  EXPECT_EQ(read_file(file("student/ckpt/20/state.json")), before);
  EXPECT_EQ(run(student("student", "22u", "--teacher moved")).exit_code, 0);
  expect_refused(run(student("run", "30u", "--teacher moved")), "with a teacher: the run has none");
}

TEST_F(TeacherCli, RanksHaveTheTeacherEach) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const std::string flags = "--vocabs run/vocab.spm --teacher run --lanes 2";
  ASSERT_EQ(run(student("one", "5u", flags)).exit_code, 0);
  const Outcome two = run(student("two", "5u", flags + " --devices cpu,cpu"));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(read_file(file("two/ckpt/5/model.safetensors")),
            read_file(file("one/ckpt/5/model.safetensors")));
}

TEST_F(TeacherCli, WithoutWeightTheModelIsThatOfNoTeacher) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const std::string flags = "--vocabs run/vocab.spm";
  ASSERT_EQ(run(student("plain", "5u", flags)).exit_code, 0);
  ASSERT_EQ(run(student("idle", "5u", flags + " --teacher run --teacher-weight 0")).exit_code, 0);
  ASSERT_EQ(run(student("taught", "5u", flags + " --teacher run")).exit_code, 0);
  const auto model = [](const std::string& run) {
    return read_file(file(run + "/ckpt/5/model.safetensors"));
  };
  EXPECT_EQ(model("idle"), model("plain"));
  EXPECT_NE(model("taught"), model("plain"));
}

TEST_F(TeacherCli, MistakesAreNamed) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  expect_refused(run(student("no", "5u", "--teacher nowhere")),
                 "--teacher: nowhere: no such file or directory");
  expect_refused(run(student("no", "5u", "--teacher run --teacher-weight 1.5")), "teacher-weight");
  expect_refused(run(student("no", "5u", "--teacher run --teacher-temperature 0")),
                 "teacher-temperature");
  expect_refused(run(student("no", "5u", "--teacher-weight 0.3")), "there is no --teacher");
  expect_refused(run(words_of("train --train-sets t.de t.en --valid-sets v.de v.en --model no "
                              "--arch decoder-lm --cpu-threads 1 --teacher run")),
                 "the student has decoder-lm");
  // Another vocabulary of the same size.
  const Outcome made =
      run(words_of("train --train-sets t.de t.de --valid-sets v.de v.de --after 5u "
                   "--model other --save-freq 5u") +
          small_model());
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_NE(read_file(file("other/vocab.spm")), read_file(file("run/vocab.spm")));
  expect_refused(run(student("no", "5u", "--teacher other --vocabs run/vocab.spm")), "vocabulary");
  EXPECT_FALSE(fs::exists(file("no/ckpt")));
}

TEST_F(TeacherCli, ThePlanHasARowForTheTeacher) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const Outcome text = run(words_of("plan --task tiny --teacher run"));
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("\nteacher "), std::string::npos) << text.out;
  EXPECT_EQ(run(words_of("plan --task tiny")).out.find("teacher"), std::string::npos);
  const Outcome json = run(words_of("plan --task tiny --teacher run --json"));
  EXPECT_NE(json.out.find("\"teacher_bytes\":"), std::string::npos) << json.out;
  EXPECT_EQ(json.out.find("\"teacher_bytes\":0,"), std::string::npos) << json.out;
  // Each rank has a copy of it.
  const Outcome ranks = run(words_of("plan --task tiny --teacher run --devices 0,1"));
  ASSERT_EQ(ranks.exit_code, 0) << ranks.err;
  const size_t first = ranks.out.find("\nteacher ");
  ASSERT_NE(first, std::string::npos) << ranks.out;
  EXPECT_NE(ranks.out.find("\nteacher ", first + 1), std::string::npos) << ranks.out;
  expect_refused(run(words_of("plan --task tiny --teacher run --dim-vocabs 9999")),
                 "the teacher has");
  expect_refused(run(words_of("plan --task tiny --teacher nowhere")),
                 "--teacher: nowhere: no such file or directory");
}

}  // namespace
}  // namespace translate_train::testing
