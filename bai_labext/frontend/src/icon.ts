import { LabIcon } from '@jupyterlab/ui-components';

import gradio from '../../apps/icons/gradio.svg';
import mlflow from '../../apps/icons/mlflow.svg';
import nni from '../../apps/icons/nni.svg';
import notebook from '../../apps/icons/notebook.svg';
import rstudio from '../../apps/icons/rstudio.svg';
import streamlit from '../../apps/icons/streamlit.svg';
import tensorboard from '../../apps/icons/tensorboard.svg';
import vscode from '../../apps/icons/vscode.svg';

const SESSION = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
<g class="jp-icon3" fill="#616161">
<path d="M4 4h8v8H4zm1.5 1.5v5h5v-5z"/>
<path d="M5 1h1v2H5zm5 0h1v2h-1zM5 13h1v2H5zm5 0h1v2h-1zM1 5h2v1H1zm0 5h2v1H1zm12-5h2v1h-2zm0 5h2v1h-2z"/>
<path d="M7 7h2v2H7z"/>
</g></svg>`;
const APP = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
<path class="jp-icon3" fill="#616161" d="M1 2h14v12H1zm1 3v8h12V5zm1-2v1h1V3zm2 0v1h1V3z"/>
</svg>`;

/** Icon of the panel: a chip with pins. */
export const sessionIcon = new LabIcon({ name: 'bai-labext:session', svgstr: SESSION });
/** Icon of an app that has no icon in `SVG_BY_APP`. */
const appIcon = new LabIcon({ name: 'bai-labext:app', svgstr: APP });

const SVG_BY_APP: Record<string, string> = {
  gradio,
  mlflow,
  nni,
  notebook,
  rstudio,
  streamlit,
  tensorboard,
  vscode
};
const icons = new Map(
  Object.entries(SVG_BY_APP).map(([name, svgstr]) => [
    name,
    new LabIcon({ name: `bai-labext:app-${name}`, svgstr })
  ])
);

export function appIconOf(app: string): LabIcon {
  return icons.get(app) ?? appIcon;
}
