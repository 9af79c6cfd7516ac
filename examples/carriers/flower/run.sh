# Two silos and a target on this machine; with tunnels, each command could run on a machine of its own.
set -eu
folder=$(mktemp -d)/federation
python -m zoo_flower provision "$folder" --config ../experiment.yaml --sources book film
python -m zoo_flower silo "$folder/book" --runtime-port 9094 > "$folder/book.log" 2>&1 & silos=$!
python -m zoo_flower silo "$folder/film" --runtime-port 9095 > "$folder/film.log" 2>&1 & silos="$silos $!"
trap 'kill $silos' EXIT INT TERM
python -m zoo_flower target "$folder/target" --request first "$@"
