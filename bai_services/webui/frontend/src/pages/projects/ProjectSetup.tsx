import { Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { SessionSetup } from '../../components/setup/SessionSetup';
import { isReadOnly, meQuery } from '../../data/accounts/me';
import { PROJECTS } from './projects';

/** The setup of new sessions of a project; administrators can change it. */
export function ProjectSetup({ project }: { project: string }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  // Variables, files and scripts may contain credentials, so monitors cannot read them.
  if (me === undefined || isReadOnly(me.role)) return null;
  return (
    <>
      <Typography.Title level={5} style={{ marginTop: 24 }}>
        {t('projects.setup')}
      </Typography.Title>
      <SessionSetup
        project={project}
        isWritable={PROJECTS.writers.some(role => role === me.role)}
      />
    </>
  );
}
