import { Typography } from 'antd';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { isEnded, type Session } from '../../../data/sessions/sessions';
import { CopyableFacts } from './CopyableFacts';

/** `bai` commands for a session, and commands that connect to it by SSH. */
export function CommandLine({ session }: { session: Session }) {
  const { t } = useTranslation();
  const { name } = session;
  const host = `${name}.bai`;
  const commands = isEnded(session)
    ? { info: `bai session info ${name}`, logs: `bai session logs ${name}` }
    : {
        app: `bai app ${name} jupyterlab`,
        logs: `bai session logs ${name}`,
        exec: `bai session exec ${name} -- COMMAND`,
        stop: `bai session rm ${name}`
      };
  return (
    <>
      <CopyableFacts area="commands" facts={commands} />
      {!isEnded(session) && (
        <section style={{ marginTop: 16 }}>
          <Typography.Title level={3} className="bai-card-title">
            {t('commands.ssh-title')}
          </Typography.Title>
          <Typography.Paragraph>
            {t('commands.ssh-help')} <Link to="/settings">{t('commands.ssh-keys')}</Link>
          </Typography.Paragraph>
          <CopyableFacts
            area="commands"
            facts={{
              ssh: `bai ssh ${name}`,
              scp: `bai scp FILE ${name}:`,
              rsync: `rsync -e 'bai ssh' -a FOLDER ${name}:`,
              config: 'bai ssh-config >> ~/.ssh/config'
            }}
          />
          <Typography.Paragraph style={{ marginTop: 12 }}>
            {t('commands.config-help', { host })}
          </Typography.Paragraph>
          <CopyableFacts
            area="commands"
            facts={{
              sftp: `sftp ${host}`,
              sshfs: `sshfs ${host}: FOLDER`,
              vscode: `code --remote ssh-remote+${host} /home/work`
            }}
          />
          <a href={`vscode://vscode-remote/ssh-remote+${host}/home/work`}>
            {t('commands.open-vscode')}
          </a>
        </section>
      )}
    </>
  );
}
