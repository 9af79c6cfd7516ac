"""By hand: data sets that are not fetched, as no address with a known content is recorded, and where somebody gets them."""

_GITHUB = "https://github.com"
_AMAZON = "The reviews are by McAuley et al., who ask for citation"

#: Where each is published, and on which terms, by the name of its folder. What a file of it looks like stands in docs/data.md.
BY_HAND: dict[str, str] = {
    "rc": "https://archive.ics.uci.edu (dataset 232, Restaurant & consumer data): rating_final.csv. Read its terms there; cite "
    "Vargas-Govea et al. 2011.",
    "douban-book-music": f"{_GITHUB}/TiliaceaeSU/PriCDR (f2e6576): processed_data/sample. It states no licence; cite Chen et al., "
    "WWW 2022.",
    "douban": f"{_GITHUB}/fengzhu1/GA-DTCDR (11a1dc6): Data/douban_book and Data/douban_music. GPL-3.0; cite Zhu et al., IJCAI "
    "2020.",
    "ciao": f"{_GITHUB}/Wang-Shuo/GraphRec_PyTorch (5768c61): datasets/Ciao/rating.mat. The repository is under GPL-3.0; for the "
    "ratings no licence is stated; cite Tang, Gao and Liu, WSDM 2012.",
    **dict.fromkeys(
        ("amazon-food-kitchen", "amazon-beauty-electronics"),
        f"{_GITHUB}/DiMarzioBian/ABXI (72e52c9): data/afk and data/abe. It states no licence. {_AMAZON}, as do Bian et al., WWW "
        "2025.",
    ),
    **dict.fromkeys(
        ("amazon-books-movies-dense", "amazon-books-movies-kg5core"),
        f"{_GITHUB}/RaghavPu/wasserstein-cdr-embeddings (94e2f03): data. It states no licence. {_AMAZON}.",
    ),
    **dict.fromkeys(
        ("amazon-sport-cloth", "amazon-electronic-phone", "amazon-sport-phone", "amazon-electronic-cloth"),
        f"{_GITHUB}/cjx96/DisenCDR (4e6d60b): dataset. The repository is under MIT. {_AMAZON}, as do Cao et al., SIGIR 2022.",
    ),
    "amazon-many": f"Eight repositories on {_GITHUB}, by domain: docs/data.md, under Amazon, names them. {_AMAZON}.",
}


def said_of(name: str) -> str:
    """Where to get a data set by hand, and where its tables go."""
    return (
        f"{name} is not fetched: no address with a known content is recorded. Get it by hand: {BY_HAND[name]} docs/data.md says "
        f"what its tables look like; put them into $ZOO_DATA/{name}, or data/{name}."
    )
