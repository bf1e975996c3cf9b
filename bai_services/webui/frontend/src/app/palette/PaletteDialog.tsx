import { useState } from 'react';
import { AutoComplete, Modal } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { foldersQuery } from '../../data/folders/folders';
import { sessionsQuery } from '../../data/sessions/sessions';
import { meQuery } from '../../data/accounts/me';
import { entitiesQuery } from '../../data/entities';
import { pagesFor } from '../pages';

const MAX_MATCHES = 8;

/** Finds a page, a session, a folder or an endpoint by name and opens it. */
export function PaletteDialog({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const [text, setText] = useState('');

  const filters: Record<string, string> = text ? { name__contains: text } : {};
  const sessions = useQuery({
    ...sessionsQuery({ limit: MAX_MATCHES, offset: 0, sort: '-created_at', filters }),
    enabled: isOpen
  });
  const folders = useQuery({
    ...foldersQuery({ limit: MAX_MATCHES, offset: 0, sort: 'name', filters }),
    enabled: isOpen
  });
  const endpoints = useQuery({
    ...entitiesQuery('/endpoints', { limit: MAX_MATCHES, offset: 0, sort: 'name', filters }),
    enabled: isOpen
  });

  const { data: me } = useQuery(meQuery);
  const pages = pagesFor(me?.role).filter(page =>
    t(page.title).toLowerCase().includes(text.toLowerCase())
  );
  const options = [
    {
      label: t('shell.pages'),
      options: pages.map(page => ({ value: `page:${page.path}`, label: t(page.title) }))
    },
    {
      label: t('pages.sessions'),
      options: (sessions.data?.items ?? []).map(session => ({
        value: `session:${session.id}`,
        label: `${session.name} · ${t(`status.${session.status}`)}`
      }))
    },
    {
      label: t('pages.data'),
      options: (folders.data?.items ?? []).map(folder => ({
        value: `folder:${folder.id}`,
        label: folder.name
      }))
    },
    {
      label: t('pages.endpoints'),
      options: (endpoints.data?.items ?? []).map(({ id, name }) => ({
        value: `endpoint:${String(id)}`,
        label: String(name)
      }))
    }
  ].filter(group => group.options.length > 0);

  const choose = (value: string) => {
    const [kind, key = ''] = value.split(/:(.*)/s);
    onClose();
    if (kind === 'session') {
      void navigate({ to: '/sessions', search: { tab: 'all', session: key } });
    } else if (kind === 'folder') {
      void navigate({ to: '/data', search: { folder: key } });
    } else if (kind === 'endpoint') {
      void navigate({ to: '/endpoints', search: { item: key } });
    } else {
      void navigate({ to: key });
    }
  };

  return (
    <Modal
      open={isOpen}
      onCancel={onClose}
      footer={null}
      closable={false}
      destroyOnHidden
      afterClose={() => setText('')}
      // No animation, so that the field has the focus before the user types.
      transitionName=""
      maskTransitionName=""
      title={t('palette.title')}
    >
      <AutoComplete
        autoFocus
        open
        defaultActiveFirstOption
        value={text}
        options={options}
        showSearch={{ onSearch: setText }}
        onSelect={choose}
        placeholder={t('palette.placeholder')}
        aria-label={t('palette.placeholder')}
        style={{ width: '100%' }}
        getPopupContainer={(field: HTMLElement) => field.parentElement ?? document.body}
      />
      <div style={{ height: 300 }} />
    </Modal>
  );
}
