import './index.css';
import './contrast.css';
