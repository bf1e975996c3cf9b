import { Button } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { BoardCard } from '../../components/board/BoardCard';
import { foldersQuery } from '../../data/folders/folders';
import { isEnded, type Session } from '../../data/sessions/sessions';
import { OpenSession } from '../sessions/OpenSession';

interface FirstStepsProps {
  sessions: { items: readonly Session[]; total: number };
  onCreateFolder: () => void;
}

/** Guides a new user: a folder, the first session, and how to open it. */
export function FirstSteps({ sessions, onCreateFolder }: FirstStepsProps) {
  const { t } = useTranslation();
  const folders = useQuery(
    foldersQuery({ limit: 1, offset: 0, sort: 'name', filters: { relation: 'own' } })
  );
  const [first] = sessions.items;
  // A user with several sessions, or with one that has ended, needs no guide.
  if (!folders.data || sessions.total > 1 || (first && isEnded(first))) {
    return null;
  }
  const current = first ? 2 : folders.data.total > 0 ? 1 : 0;
  const actions = [
    <Button key="folder" onClick={onCreateFolder}>
      {t('start.folder')}
    </Button>,
    <Link key="session" to="/launch">
      <Button type="primary">{t('start.step-session')}</Button>
    </Link>,
    first && <OpenSession key="open" session={first} type="primary" />
  ];
  return (
    <div style={{ marginBottom: 16 }}>
      <BoardCard title={t('start.first-steps')}>
        <ol className="bai-first-steps">
          {['folder', 'session', 'open'].map((step, index) => (
            <li
              key={step}
              {...(index < current ? { 'data-is-done': true } : {})}
              {...(index === current ? { 'aria-current': 'step' } : {})}
            >
              <h3>{t(`start.step-${step}`)}</h3>
              {t(`start.step-${step}-help`)}
              {index === current && <div style={{ marginTop: 8 }}>{actions[index]}</div>}
            </li>
          ))}
        </ol>
      </BoardCard>
    </div>
  );
}
