"""An option that a command would take and not use is refused: whoever typed it believes that it did something."""

from __future__ import annotations

import pytest

from unshaken.evaluation.training_record import TrainingRecord
from unshaken.scanning import ScanResult
from unshaken.substitutions import Dictionary


@pytest.fixture
def here(tmp_path, monkeypatch, write_rows):
    """A folder with rows and a folder of data, where commands are called."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"{word} film number {n}", label) for n in range(6) for word, label in (("good", "pos"), ("bad", "neg"))]
    write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    (tmp_path / "DATA").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("attack MODEL reviews.csv --vote-rate 0.2", "--vote-rate would do nothing: no vote is asked for; add --vote"),
        ("evaluate MODEL reviews.csv --vote-substitutions typos", "--vote-substitutions would do nothing"),
        ("attack MODEL reviews.csv --actors 2", "it is for --engine ray"),
        ("attack MODEL reviews.csv --engine ray -n 5 --show 1", "--count and --show would do nothing: --engine ray"),
        ("attack MODEL reviews.csv --engine ray --name a", "--name would do nothing: --engine ray"),
        ("attack MODEL reviews.csv --engine ray --vote 4", "--vote would do nothing: --engine ray"),
        ("attack MODEL reviews.csv --block 4 --show 0", "--show would do nothing: --block writes totals"),
        ("attack MODEL reviews.csv --block 4 --data DATA", "--data would do nothing: reviews.csv is a file"),
        ("attack MODEL reviews.csv --dry-run --resume", "--resume would do nothing: --dry-run estimates"),
        ("attack MODEL reviews.csv --attack deepwordbug --similarity 0.9", "--similarity would do nothing: no attack"),
        ("attack MODEL reviews.csv --data DATA", "--data would do nothing: reviews.csv brings its own rows"),
        ("attack MODEL rotten-tomatoes --data DATA", "--data would do nothing: rotten-tomatoes brings its own rows"),
        ("attack MODEL rotten-tomatoes --text-column x", "--text-column would do nothing: rotten-tomatoes has its own"),
        ("certify MODEL rotten-tomatoes --label-column x", "--label-column would do nothing: rotten-tomatoes has"),
        ("certify MODEL reviews.csv --certificate ranmask --substitutions typos", "only the certificate safer swaps"),
        ("evaluate MODEL reviews.csv --dry-run --resume", "--resume would do nothing: --dry-run estimates"),
        ("evaluate MODEL reviews.csv --recheck 5", "--recheck would do nothing: no attack is repeated"),
        ("evaluate MODEL reviews.csv --substitutions typos", "--substitutions would do nothing: no attack swaps words"),
        ("scan MODEL reviews.csv --rate 5 --answer x", "--answer and --rate would do nothing: no address is asked"),
        ("scan MODEL reviews.csv --search 0 --query-budget 9", "--query-budget would do nothing: --search 0"),
        (
            "scan MODEL reviews.csv --family typos --masked-lm MODEL",
            "--masked-lm would do nothing: --family leaves out",
        ),
        ("scan MODEL reviews.csv --family typos --similarity 0.9", "--similarity would do nothing: it is for synonyms"),
        ("scan MODEL reviews.csv --labels neg,pos,none", "--labels has 3 names, and MODEL has 2 classes"),
        ("train reviews.csv --model MODEL --hops 2", "--hops would do nothing: nothing is smoothed; add --smooth"),
        (
            "train reviews.csv --model MODEL --substitutions typos",
            "--substitutions would do nothing: standard swaps no",
        ),
        (
            "train reviews.csv --model MODEL --defence swap:substitutions=typos --substitutions wordnet",
            "--substitutions would do nothing: swap:substitutions=typos swaps no words, or names its own",
        ),
        ("train reviews.csv --model MODEL --seed 3 --seeds 0,1", "--seed would do nothing: --seeds names them all"),
        ("train reviews.csv --model MODEL --regression --cpu", "--regression would do nothing: the labels of"),
        ("play MODEL MODEL", "MODEL is named twice"),
        ("leaderboard score MODEL --track x/known/y --name z --suite mini --public MODEL", "--public would do nothing"),
        ("leaderboard score MODEL --track x/known/reviews.csv --name z --suite mini --data DATA", "reviews.csv is a"),
    ],
)
def test_what_would_do_nothing_is_refused(here, refused, tiny, words, said):
    (here / "MODEL").symlink_to(tiny)
    assert said in refused(*words.split())
    left = sorted(path.name for path in here.iterdir())
    assert not (here / "out" / "attack" / "report.json").exists()
    assert {"DATA", "MODEL", "reviews.csv"} <= set(left) <= {"DATA", "MODEL", "reviews.csv", "out"}


def test_labels_name_the_classes_of_a_folder_that_has_no_names(here, unshaken, refused, make_tiny, tiny):
    (here / "names").symlink_to(make_tiny(id2label={0: "neg", 1: "pos"}, label2id={"neg": 0, "pos": 1}))
    common = ["reviews.csv", "--family", "leetspeak", "--search", 0, "--out", here / "scan"]
    code, _, err = unshaken("scan", tiny, *common, "--labels", "neg, pos", "--protect", "pos")
    assert code == 0, err
    found = ScanResult.load(here / "scan" / "scan.json")
    assert (found.protect, found.relevant) == ("pos", 6)
    line = refused("scan", "names", *common, "--labels", "pos,neg")
    assert "names names its classes itself (neg, pos); leave out --labels" in line


def test_training_swaps_the_words_of_the_set_that_is_named(here, unshaken, refused, tiny):
    (here / "own.json").write_text('{"good": ["fine"], "bad": ["poor"]}', encoding="utf-8")
    common = ["reviews.csv", "--model", tiny, "--cpu", "--epochs", 1, "--substitutions", "dictionary:own.json"]
    code, _, err = unshaken("train", *common, "--defence", "ptwd+swap", "--select-by", "pwws", "--out", here / "run")
    assert code == 0, err
    own = Dictionary.load(here / "own.json").fingerprint
    record = TrainingRecord.load(here / "run" / "model")
    assert [known["fingerprint"] for known in record.substitutions] == [own]
    others = [*common[:-1], "typos", "--defence", "ptwd+swap", "--select-by", "pwws", "--out", here / "run", "--resume"]
    assert "holds another run: its substitutions" in refused(
        "train", *others
    )  # what is trained on with other words is another run


def test_a_run_that_an_attack_chooses_goes_on_with_the_words_of_that_attack(here, unshaken, refused, tiny):
    (here / "own.json").write_text('{"good": ["fine"], "bad": ["poor"]}', encoding="utf-8")
    common = ["reviews.csv", "--model", tiny, "--cpu", "--epochs", 1, "--select-by", "pwws", "--out", here / "run"]
    code, _, err = unshaken("train", *common, "--substitutions", "dictionary:own.json")
    assert code == 0, err
    own = Dictionary.load(here / "own.json").fingerprint
    record = TrainingRecord.load(here / "run" / "model")
    assert record.substitutions == ()  # the loss swaps nothing
    assert record.fingerprints == {own}
    assert "holds another run: its selected by" in refused("train", *common, "--substitutions", "typos", "--resume")


def test_the_reader_of_synonyms_merges_the_words_of_the_set_that_is_named(here, unshaken, tiny):
    (here / "own.json").write_text('{"good": ["fine"], "bad": ["poor"]}', encoding="utf-8")
    common = ["reviews.csv", "--model", tiny, "--cpu", "--epochs", 1, "--out", here / "run"]
    code, _, err = unshaken("train", *common, "--reader", "synonyms", "--substitutions", "dictionary:own.json")
    assert code == 0, err
    assert TrainingRecord.load(here / "run" / "model").fingerprints == {Dictionary.load(here / "own.json").fingerprint}
