import { render } from "preact";
import { App } from "./app";
import { takeBrought } from "./core/identity";
import { startKeys } from "./core/keys";
import { startTheme } from "./core/kept";
import { startPlaces } from "./core/place";
import { startClock } from "./core/visible";
import { startStream } from "./live/stream";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/tables.css";
import "./style/pages.css";
import "./style/topology.css";

startTheme();
takeBrought();
startPlaces();
startClock();
startStream();
startKeys();

const root = document.getElementById("app");
if (!root) throw new Error("index.html has an element with the id app");
render(<App />, root);
