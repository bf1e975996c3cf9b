import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import { Actions } from './actions';
import { Api } from './api';
import { openAtFirstVisit } from './firstVisit';
import { sessionIcon } from './icon';
import { LauncherTiles } from './launcher';
import { Model } from './model';
import { SessionPanel } from './panel';
import {
  IPlannedStop,
  connectionLostPlugin,
  plannedStopPlugin,
  type PlannedStop
} from './plannedStop';
import { Preparation } from './preparation';
import { reportPresence } from './presence';
import { StatusItem } from './status';
import { closeExpectedErrors } from './stockDialogs';
import { StopNotifications } from './stopNotifications';
import { isStopDue } from './stopTimes';
import { Translate, loadTexts } from './i18n';

const ID = 'bai-labext:plugin';
const DEFAULT_POLL_SECONDS = 5;
const RANK = 50;

const sessionPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'The session, its apps, folders and its owner’s other sessions.',
  autoStart: true,
  requires: [IPlannedStop],
  optional: [
    ICommandPalette,
    ILabShell,
    ILauncher,
    ILayoutRestorer,
    ISettingRegistry,
    IStateDB,
    IStatusBar,
    ITranslator
  ],
  activate: async (
    app: JupyterFrontEnd,
    planned: PlannedStop,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    stateDb: IStateDB | null,
    statusBar: IStatusBar | null,
    translator: ITranslator | null
  ): Promise<void> => {
    const api = new Api(app.serviceManager.serverSettings);
    const [t, settings] = await Promise.all([
      loadTexts(api, translator?.languageCode ?? 'en'),
      registry?.load(ID).catch(() => null)
    ]);
    const model = new Model(api);
    const actions = new Actions(model, t, app);
    const panel = new SessionPanel(model, actions, planned, t);
    panel.title.icon = sessionIcon;
    app.shell.add(panel, 'right', { rank: RANK, type: 'Session' });
    restorer?.add(panel, panel.id);
    void openAtFirstVisit(app, labShell, panel);

    const show = (): void => {
      // Wait for the next frame: after a command, the palette first restores the focus.
      requestAnimationFrame(() => app.shell.activateById(panel.id));
    };
    addCommands(app, palette, t, actions, show);
    new LauncherTiles(app, launcher, model, actions, t);
    new Preparation(app, api, model, t, stateDb, planned, () => actions.signInAgain());
    new StopNotifications(model, t, actions, planned);
    planned.setDue(() => isStopDue(model.session));
    closeExpectedErrors(() => planned.isExpected || planned.hasReturned, translator);
    reportPresence(api);
    // Polls become rare while the session does not respond, so poll when the browser is online
    // again.
    window.addEventListener('online', () => model.refresh());
    const composite = settings?.composite ?? {};
    if (statusBar && composite.statusBar !== false) {
      const item = new StatusItem(model, t, show);
      statusBar.registerStatusItem('bai-labext:status', { item, align: 'right', rank: RANK });
    }
    const seconds = (): number => {
      const chosen = settings?.composite.interval;
      return typeof chosen === 'number' ? chosen : DEFAULT_POLL_SECONDS;
    };
    settings?.changed.connect(() => model.setInterval(seconds()));
    model.start(seconds());
  }
};

function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  t: Translate,
  actions: Actions,
  show: () => void
): void {
  const commands: Record<string, [string, () => void]> = {
    'bai:show-session': [t('command-show'), show],
    'bai:show-log': [t('command-log'), () => actions.showLog()],
    'bai:rename-session': [t('command-rename'), () => actions.rename()],
    'bai:start-session': [t('command-start'), () => actions.startSession()],
    'bai:copy-ssh': [t('command-ssh'), () => actions.copySsh()],
    'bai:stop-session': [t('command-stop'), () => actions.stop()]
  };
  for (const [id, [label, execute]] of Object.entries(commands)) {
    app.commands.addCommand(id, { label, execute });
    palette?.addItem({ command: id, category: t('session') });
  }
}

export default [sessionPlugin, plannedStopPlugin, connectionLostPlugin];
