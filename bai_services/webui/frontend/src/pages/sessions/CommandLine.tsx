import { Descriptions, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { isEnded, type Session } from '../../data/sessions';

/** Commands of `bai` for a session. */
export function CommandLine({ session }: { session: Session }) {
  const { t } = useTranslation();
  const commands = isEnded(session)
    ? (['info', 'logs'] as const)
    : (['ssh', 'app', 'logs', 'exec', 'stop'] as const);
  const words: Record<(typeof commands)[number], string> = {
    info: `bai session info ${session.name}`,
    ssh: `bai ssh ${session.name}`,
    app: `bai app ${session.name} jupyterlab`,
    logs: `bai session logs ${session.name}`,
    exec: `bai session exec ${session.name} -- COMMAND`,
    stop: `bai session rm ${session.name}`
  };
  return (
    <Descriptions
      size="small"
      column={1}
      items={commands.map(command => ({
        key: command,
        label: t(`commands.${command}`),
        children: (
          <Typography.Text code copyable={{ text: words[command] }}>
            {words[command]}
          </Typography.Text>
        )
      }))}
    />
  );
}
