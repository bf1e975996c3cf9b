import { Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Scope } from '../../data/sessions/setups';
import { Bootstrap } from './Bootstrap';
import { Dotfiles } from './Dotfiles';
import { Variables } from './Variables';

export interface SetupProps {
  /** Id of a project; if undefined, the setup is the user's own. */
  project?: Scope;
  isWritable: boolean;
}

/** Variables, dotfiles and bootstrap script that new sessions get from a user or project. */
export function SessionSetup(props: SetupProps) {
  const { t } = useTranslation();
  return (
    <div style={{ maxWidth: 760 }}>
      <Typography.Paragraph type="secondary">
        {t(props.project === undefined ? 'setup.help' : 'setup.project-help')}
      </Typography.Paragraph>
      <Variables {...props} />
      <Dotfiles {...props} />
      <Bootstrap {...props} />
    </div>
  );
}
