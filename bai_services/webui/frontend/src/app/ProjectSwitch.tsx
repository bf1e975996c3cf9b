import { ProjectOutlined } from '@ant-design/icons';
import { Button, Dropdown } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { meQuery } from '../data/accounts/me';
import { changePreferences } from '../data/accounts/preferences';
import { useChosenProject } from '../data/accounts/project';
import { onMenuKeyDown } from '../components/menuKeys';

const ALL = 'all';

/** Choice of the project: lists show its sessions and folders, and new sessions belong to it. */
export function ProjectSwitch({ hasName }: { hasName: boolean }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const chosen = useChosenProject();
  const name = chosen?.name ?? t('shell.all-projects');
  if (!me || me.projects.length === 0) {
    return null;
  }
  return (
    <Dropdown
      autoFocus
      trigger={['click']}
      menu={{
        onKeyDown: onMenuKeyDown,
        selectable: true,
        selectedKeys: [chosen?.id ?? ALL],
        items: [
          { key: ALL, label: t('shell.all-projects') },
          ...me.projects.map(project => ({ key: project.id, label: project.name }))
        ],
        onClick: ({ key }) => changePreferences({ project: key === ALL ? '' : key })
      }}
    >
      <Button
        type="text"
        icon={<ProjectOutlined />}
        aria-label={t('shell.project', { name })}
        style={{ maxWidth: 200, overflow: 'hidden' }}
      >
        {hasName && name}
      </Button>
    </Dropdown>
  );
}
